"""Each page of the console: no errors, no sideways scroll, accessible, in both themes."""

from __future__ import annotations

from itertools import product

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.console.chromium import Chromium
from tests.interop.console.sample import present

THEMES = ("light", "dark")
WIDTHS = (1280, 360)


@pytest.mark.parametrize("address", present())
def test_a_page_is_whole_and_accessible(
    browser: Chromium, sample: LocalBroker, address: str
) -> None:
    for theme, width in product(THEMES, WIDTHS):
        browser.set_theme(theme)
        browser.set_width(width)
        browser.open(sample.console_url.rstrip("/") + address)
        assert browser.complaints() == [], (theme, width)
        assert len(browser.all("h1")) == 1
        assert browser.all("main [role=alert]") == [], browser.text("main")
        assert browser.find("html").get_attribute("data-theme") == theme
        assert browser.overflow() == [], (theme, width)
        assert browser.violations() == [], (theme, width)


def test_an_error_has_a_page_like_the_others(browser: Chromium, sample: LocalBroker) -> None:
    for theme in THEMES:
        browser.set_theme(theme)
        browser.open(sample.console_url + "topics?after=%00")
        # The browser itself reports the status of the answer.
        assert all("400" in line for line in browser.complaints())
        assert browser.find("main [role=alert]").is_displayed()
        assert browser.violations() == []

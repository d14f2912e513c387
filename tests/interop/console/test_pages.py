"""Each page of the console, and what it shows in other states of a broker.

Each has no errors and no sideways scroll, and is accessible, in both themes.
"""

from __future__ import annotations

import base64
from itertools import product

import pytest

from rocketpy_broker import BrokerUser, LocalBroker
from tests.interop.console.chromium import Chromium
from tests.interop.console.sample import ADDRESSES, BILLING, SHIPPING, fill, present

THEMES = ("light", "dark")
WIDTHS = (1280, 360)
FORM = "document.querySelector('main form[method=post]')"
LISTS = ("/", "/topics", "/groups", "/clients", "/transactions", "/store", "/store/unused-topics")
# Addresses in the sample that the pages' own do not cover.
STATES = (
    f"/groups/{BILLING}",
    f"/groups/{BILLING}/dead-letters?order=oldest",
    f"/groups/{BILLING}/dead-letters/resend?begin=0&end=2",
    f"/groups/{SHIPPING}/dead-letters",
    f"/groups/{SHIPPING}/reset?topic=orders&to=earliest",
    "/delayed/3",
    "/topics?system=on",
    "/topics/SCHEDULE_TOPIC_XXXX",
    "/topics/SCHEDULE_TOPIC_XXXX/delete",
    "/topics/SCHEDULE_TOPIC_XXXX/queues/15/messages/0",
    f"/topics/%25DLQ%25{BILLING}/empty",
    "/topics/audit/queues/0/messages/0",
    "/topics/orders/messages?key=order-3",
    "/topics/orders?notice=topic-changed",
)
# Fields by which the sample's forms are refused.
REFUSED = {
    "/new/topic": {"topic": "a b"},
    "/topics/{topic}/edit": {"read_queues": "-1"},
    "/topics/{topic}/send": {"queue": "99"},
    "/topics/{topic}/empty": {"token": "0"},
    "/topics/{topic}/delete": {"token": "0"},
    "/new/group": {"group": "a b"},
    "/groups/{group}/edit": {"retry_max_times": ""},
    "/groups/{group}/delete": {"token": "0"},
    "/groups/{group}/dead-letters/resend": {"topic": "missing"},
    "/groups/{group}/dead-letters/{offset}/copy": {"topic": "missing"},
    "/store/clean": {"token": "0"},
    "/store/unused-topics": {"token": "0"},
}


def faults(browser: Chromium, address: str) -> list[object]:
    """Returns what is wrong with a page on a wide and on a narrow screen, one in each theme."""
    found: list[object] = []
    for theme, width in zip(THEMES, WIDTHS, strict=True):
        browser.set_theme(theme)
        browser.set_width(width)
        browser.open(address)
        found += [*browser.complaints(), *browser.overflow(), *browser.violations()]
    return found


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


@pytest.mark.parametrize("address", STATES)
def test_a_state_of_a_page_is_accessible(
    browser: Chromium, sample: LocalBroker, address: str
) -> None:
    assert faults(browser, sample.console_url.rstrip("/") + address) == []


@pytest.mark.parametrize("page", REFUSED)
def test_a_refused_form_is_accessible(browser: Chromium, sample: LocalBroker, page: str) -> None:
    browser.open(sample.console_url.rstrip("/") + ADDRESSES[page])
    for name, value in REFUSED[page].items():
        browser.run(f"{FORM}.elements[arguments[0]].value = arguments[1]", name, value)
    # The broker refuses what the browser would not send.
    browser.run(f"{FORM}.noValidate = true")
    browser.submit("main form[method=post] button")
    assert browser.find("main [role=alert]").is_displayed()
    for theme in THEMES:
        browser.set_theme(theme)
        assert browser.violations() == []


def test_lists_without_entries_are_accessible(browser: Chromium, own_broker: LocalBroker) -> None:
    for address in LISTS:
        assert faults(browser, own_broker.console_url.rstrip("/") + address) == [], address


def test_a_master_and_its_slave_are_accessible(browser: Chromium) -> None:
    with (
        LocalBroker(http_port=0, ha_port=0) as master,
        LocalBroker(http_port=0, broker_role="SLAVE", master=master.remoting_endpoint) as slave,
    ):
        fill(master)
        store = master.console_url + "store"
        browser.open(store)
        browser.wait("document.querySelector('[aria-label=Slaves] tbody tr') !== null")
        assert faults(browser, store) == []
        for address in ("/", "/topics", "/store"):
            assert faults(browser, slave.console_url.rstrip("/") + address) == [], address


def test_the_pages_of_a_user_are_accessible(browser: Chromium) -> None:
    users = [
        BrokerUser("admin", "secret-of-admin", "admin"),
        BrokerUser("reader", "secret-of-reader", topics={"orders": "SUB"}),
    ]
    basic = base64.b64encode(b"reader:secret-of-reader").decode()
    with LocalBroker(http_port=0, users=users) as broker:
        fill(broker)
        browser.sign_in(f"Basic {basic}")
        for address in ("/", "/topics", "/topics/orders", "/groups"):
            assert faults(browser, broker.console_url.rstrip("/") + address) == [], address

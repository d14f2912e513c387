"""Each action of the console, by its form, from a page that names it to its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from selenium.webdriver.common.keys import Keys

from rocketpy_broker import LocalBroker
from rocketpy_broker.server.http.console.pages.table import PAGES
from tests.interop.console.chromium import Chromium
from tests.interop.console.sample import ADDRESSES, BILLING, ORDERS, SHIPPING, fill

FORM = "main form[method=post]"
LETTERS = "/groups/{group}/dead-letters"


@dataclass(frozen=True, slots=True)
class Case:
    """A form: its page, what is written into its fields, and what is true afterwards."""

    page: str
    is_done: Callable[[LocalBroker], bool]
    fields: Mapping[str, str] = field(default_factory=dict)


CASES = (
    Case("/new/topic", lambda broker: "returns" in broker.topics(), {"topic": "returns"}),
    Case(
        "/topics/{topic}/edit",
        lambda broker: broker.topic("orders").write_queue_nums == 6,
        {"read_queues": "6", "write_queues": "6"},
    ),
    Case(
        "/topics/{topic}/send",
        lambda broker: [each.text for each in broker.query("orders", "form-1")] == ["by a form"],
        {"body": "by a form", "keys": "form-1"},
    ),
    Case("/topics/{topic}/empty", lambda broker: broker.messages("orders") == []),
    Case("/topics/{topic}/delete", lambda broker: "orders" not in broker.topics()),
    Case("/new/group", lambda broker: "refunds" in broker.groups(), {"group": "refunds"}),
    Case(
        "/groups/{group}/edit",
        lambda broker: (broker.group(SHIPPING).settings or {})["retryMaxTimes"] == 3,
        {"retry_max_times": "3"},
    ),
    Case("/groups/{group}/delete", lambda broker: SHIPPING not in broker.groups()),
    Case(
        f"{LETTERS}/resend",
        lambda broker: len(broker.messages("orders")) == ORDERS + 1,
    ),
    Case(
        LETTERS + "/{offset}/copy",
        lambda broker: "repaired" in [each.text for each in broker.messages("orders")],
        {"body": "repaired"},
    ),
)
PRESENT = {page.path for page in PAGES}


@pytest.fixture
def filled(own_broker: LocalBroker) -> LocalBroker:
    """Returns a broker with the sample that the test may change."""
    fill(own_broker)
    return own_broker


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.page in PRESENT], ids=lambda case: case.page
)
def test_a_form_does_what_it_says(browser: Chromium, filled: LocalBroker, case: Case) -> None:
    browser.open(filled.console_url.rstrip("/") + ADDRESSES[case.page])
    for name, value in case.fields.items():
        browser.write(f"{FORM} [name={name}]", value)
    assert not case.is_done(filled)
    browser.submit(f"{FORM} button")
    assert browser.text("main [role=status]")
    assert case.is_done(filled)
    assert browser.violations() == []
    # The page again is a page: it repeats no action.
    browser.open(browser.url)
    assert browser.complaints() == []


@pytest.mark.skipif("/groups/{group}/reset" not in PRESENT, reason="groups have no pages")
def test_a_reset_shows_what_it_will_do_before_it_does_it(
    browser: Chromium, filled: LocalBroker
) -> None:
    browser.open(f"{filled.console_url}groups/{SHIPPING}/reset?topic=orders")
    before = filled.lag("orders", SHIPPING).total
    browser.find("main [name=to][value=earliest]").click()
    browser.submit("main form[method=get] button")
    assert browser.violations() == []
    assert filled.lag("orders", SHIPPING).total == before
    browser.submit(f"{FORM} button")
    assert browser.text("main [role=status]")
    assert filled.lag("orders", SHIPPING).total == ORDERS


@pytest.mark.skipif("/new/topic" not in PRESENT, reason="topics have no forms")
def test_a_form_is_filled_and_sent_by_keyboard_alone(
    browser: Chromium, own_broker: LocalBroker
) -> None:
    browser.open(f"{own_broker.console_url}new/topic")
    browser.tab_to(f"{FORM} [name=topic]")
    browser.press("by-keyboard", Keys.ENTER)
    browser.wait("document.querySelector('main [role=status]') !== null")
    assert "by-keyboard" in own_broker.topics()


@pytest.mark.skipif("/topics/{topic}/delete" not in PRESENT, reason="topics have no forms")
def test_a_form_of_an_earlier_start_is_refused_and_changes_nothing(
    browser: Chromium, filled: LocalBroker
) -> None:
    browser.open(filled.console_url.rstrip("/") + ADDRESSES["/topics/{topic}/delete"])
    filled.restart()
    browser.submit(f"{FORM} button")
    assert "repeat the action" in browser.text("main [role=alert]")
    assert "orders" in filled.topics()


def test_a_refused_form_keeps_what_was_entered_and_names_the_error(
    browser: Chromium, filled: LocalBroker
) -> None:
    browser.open(filled.console_url.rstrip("/") + ADDRESSES["/topics/{topic}/send"])
    text = '\n</textarea>"<b>kept</b>'
    browser.write(f"{FORM} [name=body]", text)
    browser.write(f"{FORM} [name=properties]", "no sign")
    browser.submit(f"{FORM} button")
    assert "no sign" in browser.text("main [role=alert]")
    assert browser.find(f"{FORM} [name=body]").get_attribute("value") == text
    assert browser.violations() == []
    # A longer text than most, of letters that take many bytes in a form.
    browser.run(
        "document.querySelector('main [name=body]').value = 'ä'.repeat(arguments[0])", ORDERS * 200
    )
    browser.write(f"{FORM} [name=properties]", "")
    browser.write(f"{FORM} [name=keys]", "long")
    browser.submit(f"{FORM} button")
    assert [each.text for each in filled.query("orders", "long")] == ["ä" * ORDERS * 200]


@pytest.mark.skipif(f"{LETTERS}/resend" not in PRESENT, reason="letters have no pages")
def test_dead_letters_are_chosen_by_their_boxes(browser: Chromium, filled: LocalBroker) -> None:
    browser.open(filled.console_url.rstrip("/") + ADDRESSES[LETTERS])
    for box in browser.all("main tbody [name=offset]"):
        box.click()
    browser.submit("main form:has(tbody) button")
    browser.submit(f"{FORM} button")
    count = len(filled.dead_letters(BILLING))
    assert len(filled.messages("orders")) == ORDERS + count

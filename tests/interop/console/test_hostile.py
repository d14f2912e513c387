"""Messages and addresses that are programs for a browser: the console shows them as text."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.server.http.console.pages.table import PAGES
from tests.interop.console.chromium import Chromium
from tests.interop.console.sample import BILLING

HOSTILE = (
    "<script>window.isHurt = true</script>",
    '<img src=x onerror="window.isHurt = true">',
    "\"'><svg onload=window.isHurt=true>",
    "</textarea></pre></title><script>window.isHurt = true</script>",
    '<div hx-get="/" hx-trigger="load" hx-on:click="window.isHurt = true">{{ 7 * 7 }}</div>',
    '<a href="javascript:window.isHurt=true">a link</a>',
    '<meta http-equiv="refresh" content="0;url=/metrics"><base href="//evil.example/">',
    '<form action="/topics/orders/delete" method="post"><button>Read on</button></form>',
    '{"<b>bold</b>": "</script><script>window.isHurt = true</script>"}',
)
# What none of these texts may become.
ELEMENTS = (
    "main script, main img, main svg[onload], main [onerror], main [hx-on\\:click], main meta, "
    "main base, main b, main [href^='javascript:'], main [action='/topics/orders/delete']"
)
PRESENT = {page.path for page in PAGES}


@pytest.fixture(scope="module")
def hostile() -> Iterator[LocalBroker]:
    """Yields a broker whose messages and dead letters have the texts everywhere."""
    with LocalBroker(http_port=0) as broker:
        broker.create_topic("orders", queues=1)
        broker.create_group(BILLING)
        for text in HOSTILE:
            properties = {"note": text, text.replace("\n", " "): "a name"}
            broker.send(
                "orders", text, tags=text, keys=text.replace(" ", "/"), properties=properties
            )
        for message in broker.pull("orders", BILLING):
            broker.send_back(message, BILLING, delay_level=-1)
        yield broker


def addresses() -> list[tuple[str, str]]:
    """Returns pages that show the texts, and pages that repeat a text of their address."""
    numbers = range(len(HOSTILE))
    letters, queue = f"/groups/{BILLING}/dead-letters", "/topics/orders/queues/0/messages"
    message = "/topics/{topic}/queues/{queue_id}/messages/{offset}"
    letter = "/groups/{group}/dead-letters"
    return [
        ("/topics/{topic}", "/topics/orders"),
        ("/topics/{topic}/messages", "/topics/orders/messages"),
        *((message, f"{queue}/{number}") for number in numbers),
        ("/groups/{group}", f"/groups/{BILLING}"),
        (letter, letters),
        *((letter + "/{offset}", f"{letters}/{number}") for number in numbers),
        *((letter + "/{offset}/copy", f"{letters}/{number}/copy") for number in numbers),
        *(("/topics/{topic}/messages", f"/topics/orders/messages?key={asked}") for asked in ASKED),
        *(("/topics/{topic}/messages", f"/topics/orders/messages?tag={asked}") for asked in ASKED),
        *(("/topics", f"/topics?prefix={asked}&after={asked}") for asked in ASKED),
        *(("/groups", f"/groups?prefix={asked}&after={asked}") for asked in ASKED),
        *(("/transactions", f"/transactions?group={asked}") for asked in ASKED),
        *(("/topics/{topic}", f"/topics/{asked}") for asked in ASKED),
        *(("/groups/{group}", f"/groups/{asked}") for asked in ASKED),
        ("/", "/?notice=" + ASKED[0]),
    ]


ASKED = [quote(text, safe="") for text in HOSTILE]


@pytest.mark.parametrize("page", sorted({page for page, _ in addresses()} & PRESENT))
def test_a_hostile_text_stays_a_text(browser: Chromium, hostile: LocalBroker, page: str) -> None:
    for each, address in addresses():
        if each != page:
            continue
        browser.open(hostile.console_url.rstrip("/") + address)
        # The browser itself reports the status of an error's page.
        assert [line for line in browser.complaints() if "with a status of 4" not in line] == []
        assert browser.run("return window.isHurt === undefined"), address
        assert browser.url == hostile.console_url.rstrip("/") + address
        assert [found.get_attribute("outerHTML") for found in browser.all(ELEMENTS)] == []


def test_the_browser_refuses_what_a_page_would_let_through(
    browser: Chromium, hostile: LocalBroker
) -> None:
    """Puts the texts into a page as elements: the headers alone hold, and the browser reports."""
    browser.open(hostile.console_url)
    # No header keeps an element `meta` from leaving the page.
    for text in (each for each in HOSTILE if "http-equiv" not in each):
        browser.run("document.querySelector('main').innerHTML = arguments[0]", text)
    browser.run(
        "const script = document.createElement('script');"
        "script.textContent = 'window.isHurt = true'; document.body.append(script)"
    )
    assert browser.run("return window.isHurt === undefined")
    assert any("Content Security Policy" in line for line in browser.complaints())

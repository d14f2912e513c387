"""Lists of a topic's messages: by queue, time, key, id and tag."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from tests.broker.http.api_client import get
from tests.broker.http.console.topic_browser import Browser, Parsed
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker
from tests.support.broker.transactions import ROLLBACK, end, prepare

ORDERS = "/topics/orders/messages"
ONE = "/topics/orders/queues/0/messages"


async def send(
    running: RunningBroker,
    *bodies: bytes,
    queue_id: int = 0,
    tags: str | None = None,
    keys: Sequence[str] | None = None,
    **properties: str,
) -> int:
    """Sends messages with the same properties; returns the first one's position in the log."""
    named = {name: [value] * len(bodies) for name, value in properties.items()}
    block = wire_block("orders", bodies, tags=tags, keys=keys, properties=named)
    answer = await running.append_block("orders", queue_id, block)
    assert answer.status.code == 0, answer.status.remark
    return answer.physical_offset


def places(page: Parsed) -> list[str]:
    """Returns queue and offset of the messages that a page lists."""
    return [row[0] for row in page.rows if re.fullmatch(r"\d+ : \d+", row[0])]


async def test_the_newest_messages_of_each_queue_are_shown_first(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=3)
    browser = Browser(running_http)
    assert "No message." in (await browser.page(ORDERS)).text
    await send(running_http, b"first", tags="paid", keys=["k1 k2"], UNIQ_KEY="ID1")
    running_http.clock.advance(1_000)
    await send(running_http, b"second", queue_id=2)
    running_http.clock.advance(1_000)
    await send(running_http, b"third")
    page = await browser.page(ORDERS)
    assert places(page) == ["0 : 1", "2 : 0", "0 : 0"]
    row = page.rows[-1]
    assert row[2:6] == ["paid", "k1 k2", "ID1", "first"]
    assert page.link("0 : 0") == f"{ONE}/0"


async def test_the_newest_of_long_messages_stands_for_its_queue(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=1)
    for body in (b"a", b"b", b"c"):
        await send(running_http, body * (200 << 10))
    assert places(await Browser(running_http).page(ORDERS)) == ["0 : 2"]


async def test_a_queue_is_paged_by_offset(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=2)
    await send(running_http, *[b"%d" % number for number in range(100)])
    browser = Browser(running_http)
    newest = await browser.page(f"{ORDERS}?queue=0")
    assert places(newest) == [f"0 : {number}" for number in range(68, 100)]
    assert "Newer" not in newest.text
    older = await browser.page(newest.link("Older"))
    assert (places(older)[0], places(older)[-1]) == ("0 : 36", "0 : 67")
    assert places(await browser.page(older.link("Newer"))) == places(newest)
    assert places(await browser.page(older.link("Newest"))) == places(newest)
    first = await browser.page(f"{ORDERS}?queue=0&offset=3")
    assert places(first)[0] == "0 : 3"
    first = await browser.page(first.link("Older"))
    assert places(first)[0] == "0 : 0"
    assert "Older" not in first.text
    beyond = await browser.page(f"{ORDERS}?queue=0&offset=1000000")
    assert places(beyond) == ["0 : 99"]
    assert "Queue 1 is empty" in (await browser.page(f"{ORDERS}?queue=1")).text


async def test_long_messages_take_more_pages_and_none_is_left_out(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=1)
    for number in range(5):
        await send(running_http, b"%d" % number * (100 << 10))
    browser, found = Browser(running_http), []
    page = await browser.page(f"{ORDERS}?queue=0&offset=0")
    while True:
        found += places(page)
        if "Newer" not in page.text:
            break
        page = await browser.page(page.link("Newer"))
    assert found == [f"0 : {number}" for number in range(5)]


async def test_messages_are_found_by_time(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=2)
    times = []
    for number in range(4):
        times.append(running_http.clock.now_ms())
        await send(running_http, b"%d" % number, queue_id=number % 2)
        running_http.clock.advance(60_000)
    browser = Browser(running_http)
    listed = (await get(running_http, "/topics/orders/queues/0/messages"))["messages"]
    second = listed[1]["storeTimestamp"]
    page = await browser.page(f"{ORDERS}?queue=0&time={second[:19]}")
    assert places(page) == ["0 : 1"]
    page = await browser.page(f"{ORDERS}?time={second[:19]}")
    assert places(page) == ["0 : 1", "1 : 1"]
    for query in ("", "queue=0&"):
        page = await browser.page(f"{ORDERS}?{query}time=2100-01-01T00:00")
        assert places(page) == []


async def test_messages_are_found_by_key_id_and_tag(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, b"a", tags="paid", keys=["k1"], UNIQ_KEY="ID1")
    await send(running_http, b"b", tags="open", keys=["k1 k2"], UNIQ_KEY="ID2")
    browser = Browser(running_http)
    for query, found in [
        ("key=k1", ["0 : 1", "0 : 0"]),
        ("key=k2", ["0 : 1"]),
        ("key=+ID1+", ["0 : 0"]),
        ("key=none", []),
        ("tag=paid", ["0 : 0"]),
    ]:
        assert places(await browser.page(f"{ORDERS}?{query}")) == found, query
    listed = (await get(running_http, "/topics/orders/queues/0/messages"))["messages"]
    page = await browser.page(f"{ORDERS}?key={listed[1]['offsetMsgId']}")
    assert places(page) == ["0 : 1"]
    assert places(await browser.page(f"{ORDERS}?key={'0' * 32}")) == []


@pytest.mark.parametrize("query", ["key=k", "tag=paid"])
async def test_messages_with_a_key_or_tag_are_paged(
    running_http: RunningBroker, query: str
) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, *[b"x"] * 50, tags="paid", keys=["k"] * 50)
    browser = Browser(running_http)
    page = await browser.page(f"{ORDERS}?{query}")
    assert (places(page)[0], places(page)[-1]) == ("0 : 49", "0 : 18")
    page = await browser.page(page.link("Older"))
    assert (places(page)[0], places(page)[-1]) == ("0 : 17", "0 : 0")


async def test_a_message_that_waits_is_found_by_its_key(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, b"later", keys=["k"], UNIQ_KEY="ID1", DELAY="3")
    browser = Browser(running_http)
    page = await browser.page(f"{ORDERS}?key=k")
    assert "Not delivered yet" in page.text
    (target,) = [link for link, _ in page.links if "SCHEDULE_TOPIC" in link]
    assert "It waits until" in (await browser.page(target)).text
    running_http.clock.advance(11_000)
    while not places(await browser.page(ORDERS)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    page = await browser.page(f"{ORDERS}?key=k")
    assert "Not delivered yet" not in page.text
    waited = await browser.page(target)
    assert "It has been delivered: message in orders" in waited.text
    assert waited.link("message in orders") == f"{ONE}/0"


async def test_a_half_message_is_found_and_reports_its_transaction(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("T", queues=2)
    half = await prepare(running_http, "TX1")
    browser = Browser(running_http)
    page = await browser.page("/topics/T/messages?key=TX1")
    (target,) = [link for link, _ in page.links if "HALF" in link]
    page = await browser.page(target)
    assert "half message of a transaction for T, which is open" in page.text
    assert page.link("open transactions") == "/transactions"
    await end(running_http, half, ROLLBACK)
    assert "which is rolled back or abandoned" in (await browser.page(target)).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{ORDERS}?queue=4", 400),
        (f"{ORDERS}?queue=x", 400),
        (f"{ORDERS}?queue=99999999999", 400),
        (f"{ORDERS}?queue=0&offset=-1", 400),
        (f"{ORDERS}?queue=0&offset=9999999999999999999", 400),
        (f"{ORDERS}?offset=1", 400),
        (f"{ORDERS}?time=soon", 400),
        (f"{ORDERS}?queue=0&time=%3Cb%3E", 400),
        (f"{ORDERS}?key=k&before=x", 400),
        ("/topics/none/messages", 404),
        ("/topics/%ff/messages", 404),
        (f"{ONE}/7", 404),
        (f"{ONE}/x", 400),
        (f"{ONE}/999999999999999999", 404),
        ("/topics/orders/queues/9/messages/0", 400),
        ("/topics/orders/queues/99999999999/messages/0", 400),
        ("/topics/none/queues/0/messages/0", 404),
    ],
)
async def test_a_bad_address_has_an_error_page(
    running_http: RunningBroker, path: str, status: int
) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, b"a")
    assert (await Browser(running_http).get(path)).error[0] == status

"""Messages of a topic: lists of them, the page of one, and where it went."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Sequence

import pytest

from rocketpy_broker.server.http.console.message_views import (
    DEPTH_MAX,
    NODES_MAX,
    TEXT_BYTES_MAX,
    JsonNode,
    json_node,
)
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.block.record_block import scatter_headers
from rocketpy_proto.record.sys_flag import COMPRESSED
from tests.broker.http.api_client import ask, get
from tests.broker.http.console.test_topics import commit
from tests.broker.http.console.topic_browser import Browser, Parsed
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.retries import RETRY, outcome
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import ROLLBACK, end, prepare

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{ 7 * 7 }}"
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


def compressed(stored: bytes) -> WireBlock:
    """Returns a message whose body is marked as compressed."""
    block = wire_block("orders", [stored])
    parsed = block.parsed()
    parsed.header["sys_flag"] = COMPRESSED
    scatter_headers(parsed.data, parsed.positions, parsed.header)
    return WireBlock(parsed.data.tobytes(), block.record_sizes)


def places(page: Parsed) -> list[str]:
    """Returns queue and offset of the messages that a page lists."""
    return [row[0] for row in page.rows if re.fullmatch(r"\d+ : \d+", row[0])]


# --- Lists ---


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


# --- One message ---


async def test_a_message_has_its_body_facts_and_properties(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    body = {"id": 17, "price": 1.10, "lines": [{"sku": "a"}, None], "big": 10**30}
    text = json.dumps(body).replace("1.1,", "1.10,")
    await send(running_http, b"before")
    await send(running_http, text.encode(), tags="paid", keys=["k"], UNIQ_KEY="ID1", shop="3")
    browser = Browser(running_http)
    page = await browser.page(f"{ONE}/1")
    assert page.texts["pre"][0] == text
    assert page.texts["summary"] == ["4 values", '"lines": 2 values', "0: 1 value", "Hex"]
    for line in ('"price": 1.10', f'"big": {10**30}', '"sku": "a"', "1: null"):
        assert line in page.text
    facts = {row[0]: row[1] for row in page.rows}
    assert (facts["Unique id"], facts["Tag"], facts["Keys"]) == ("ID1", "paid", "k")
    assert facts["shop"] == "3"
    assert facts["Deliveries that failed"] == "0"
    assert "10.0.0.1:54321" in facts["Sent"]
    assert "7b 22 69 64" in page.texts["pre"][1]
    assert page.link("Older") == f"{ONE}/0"
    assert "Newer" not in page.text
    raw = await ask(running_http, "GET", page.link("Raw JSON").removeprefix("/api/v1"))
    assert [each["body"] for each in raw.json["messages"]] == [text]


async def test_hostile_texts_stay_texts(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    body = json.dumps({HOSTILE: [HOSTILE, "\ud800\u202e"]}).encode()
    key = HOSTILE.replace(" ", "")
    await send(running_http, body, tags=HOSTILE, keys=[key], UNIQ_KEY=HOSTILE, shop=HOSTILE)
    await send(running_http, b"x", **{HOSTILE: HOSTILE})
    browser = Browser(running_http)
    for path in (ORDERS, f"{ORDERS}?queue=0", f"{ONE}/0", f"{ONE}/1"):
        page = await browser.page(path)
        assert not {"img", "onerror", "style"} & (page.tags | page.attributes), path
        assert all(not text.strip() for text in page.texts["script"])
        assert HOSTILE[:30] in page.text
    page = await browser.page(f"{ONE}/0")
    assert page.text.count("{{ 7 * 7 }}") > 3
    assert "\\ud800\\u202e" in page.text
    for name in ("key", "tag"):
        query = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
        page = await browser.page(f"{ORDERS}?{name}={query}")
        assert page.fields[name] == '"><script>alert(1)</script>'
        assert all(not text.strip() for text in page.texts["script"])


async def test_a_body_that_is_no_text_is_shown_in_hex(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, b"\xff\x00\x01", b"", "a\u202eb".encode(), b"a\x1b[2J")
    browser = Browser(running_http)
    assert (await browser.page(ORDERS)).rows[-1][5] == "ff 00 01"
    page = await browser.page(f"{ONE}/0")
    assert "The body is no printable text." in page.text
    assert page.texts["pre"][0].startswith("00000000  ff 00 01")
    assert (await browser.page(f"{ONE}/1")).texts["pre"][0] == ""
    for offset in (2, 3):
        assert "no printable text" in (await browser.page(f"{ONE}/{offset}")).text


async def test_long_bodies_and_bombs_are_cut(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0, commit_log_segment_bytes=16 << 20) as running:
        await running.create_topic("orders", queues=1)
        await send(running, "é".encode() * (2 << 20), keys=["long"])
        bomb = compressed(zlib.compress(b"0" * (60 << 20), 9))
        await running.append_block("orders", 0, bomb)
        await running.append_block("orders", 0, compressed(b"no stream"))
        browser = Browser(running)
        page = await browser.page(f"{ORDERS}?queue=0&offset=0")
        assert places(page) == ["0 : 0"]
        page = await browser.page(page.link("Newer"))
        assert [len(row[5]) for row in page.rows[1:]] == [200, len("no stream")]
        for offset, character in ((0, "é"), (1, "0")):
            seen = await browser.get(f"{ONE}/{offset}")
            text = seen.page.texts["pre"][0]
            assert text == character * (TEXT_BYTES_MAX // len(character.encode()))
            assert "This is its start" in seen.page.text
            assert len(seen.body) < 200_000
        page = await browser.page(f"{ONE}/2")
        assert "is no whole ZLIB stream" in page.text
        assert page.texts["pre"][0] == "no stream"


def depth(node: JsonNode) -> int:
    return 1 + max(map(depth, node.inner), default=0)


def count(node: JsonNode) -> int:
    return 1 + sum(map(count, node.inner))


def test_json_is_shown_up_to_a_depth_and_a_number_of_values() -> None:
    deep = json_node("[" * 200 + "]" * 200)
    assert deep is not None
    assert depth(deep) == DEPTH_MAX + 1
    wide = json_node(json.dumps([list(range(10))] * 1_000))
    assert wide is not None
    assert count(wide) == NODES_MAX
    assert wide.left_out == 1_000 - len(wide.inner)
    assert json_node("[" * 50_000) is None
    assert json_node("17") is None
    assert json_node('{"a": 1') is None


# --- Where it went ---


async def steps(running: RunningBroker, offset: int = 0) -> list[str]:
    """Returns the sentences about the groups of a message."""
    page = await Browser(running).page(f"{ONE}/{offset}")
    return [" ".join(text.split()) for text in page.texts["li"] if "JSON" not in text]


async def test_a_message_reports_which_groups_have_consumed_it(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=2)
    await send(running_http, b"a", b"b")
    page = await Browser(running_http).page(f"{ONE}/1")
    assert "No group has consumed from the topic." in page.text
    await commit(running_http, "billing", "orders", 0, 2)
    await commit(running_http, "other", "orders", 1, 0)
    await commit(running_http, "shipping", "orders", 0, 0)
    assert await steps(running_http, 1) == [
        "billing has consumed it.",
        "other has no offset in this queue.",
        "shipping has not consumed it yet. 1 older messages are before it.",
    ]


async def test_groups_of_a_message_are_paged(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await send(running_http, b"a")
    for number in range(12):
        await commit(running_http, f"group-{number:02}", "orders", 0, 1)
    page = await Browser(running_http).page(f"{ONE}/0")
    assert len(page.texts["li"]) == 10
    page = await Browser(running_http).page(page.link("Next groups"))
    assert [text.split()[0] for text in page.texts["li"]] == ["group-10", "group-11"]


async def test_a_message_reports_its_retries_and_its_dead_letter(
    running_http: RunningBroker,
) -> None:
    running = running_http
    await running.create_topic("orders", queues=1)
    position = await send(running, b"a", UNIQ_KEY="ID1")
    await commit(running, "billing", "orders", 0, 1)
    assert (await outcome(running, position, 1, group="billing"))[:2] == (0, RETRY)
    (waits,) = await steps(running)
    assert waits.startswith("billing: sent it back; retry 1 waits until ")
    running.clock.advance(2_000)
    while "consumer has not taken" not in (await steps(running))[0]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await steps(running) == [
        "billing: retried once; a consumer has not taken the last retry"
    ]
    page = await Browser(running).page(f"{ONE}/0")
    retry = page.link("last retry")
    assert retry == "/topics/%25RETRY%25billing/queues/0/messages/0"
    page = await Browser(running).page(retry)
    assert "It is retry 1 of billing. Its first send was to orders" in page.text
    await commit(running, "billing", "%RETRY%billing", 0, 1)
    assert (await steps(running))[0].endswith("it has consumed the last retry")
    [pulled] = await running.pull(topic="%RETRY%billing", queue_id=0, offset=0)
    position = decode_record(pulled.records).record.physical_offset
    await outcome(running, position, -1, group="billing")
    assert (
        await steps(running) == ["billing did not consume it, after once: dead letter of billing"]
        or "dead letter of billing" in (await steps(running))[0]
    )
    page = await Browser(running).page(f"{ONE}/0")
    assert page.link("dead letter of billing") == "/groups/billing/dead-letters/0"
    letter = await Browser(running).page("/topics/%25DLQ%25billing/queues/0/messages/0")
    assert letter.link("dead letter of billing") == "/groups/billing/dead-letters/0"


async def test_a_key_that_is_equal_to_an_id_is_no_copy(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await running_http.create_topic("%DLQ%billing", queues=1)
    await send(running_http, b"a", UNIQ_KEY="ID1")
    block = wire_block("%DLQ%billing", [b"x"], keys=["ID1"], properties={"UNIQ_KEY": ["ID2"]})
    await running_http.append_block("%DLQ%billing", 0, block)
    await commit(running_http, "billing", "orders", 0, 1)
    assert await steps(running_http) == ["billing has consumed it."]

"""The page of one message: its body, its facts, and where it went."""

from __future__ import annotations

import asyncio
import json
import zlib

from rocketpy_broker.server.http.console.message_views import (
    DEPTH_MAX,
    NODES_MAX,
    TEXT_BYTES_MAX,
    JsonNode,
    json_node,
)
from rocketpy_proto.record import decode_record
from tests.broker.http.api_client import ask
from tests.broker.http.console.messages.test_messages import ONE, ORDERS, places, send
from tests.broker.http.console.test_topics import commit
from tests.broker.http.console.topic_browser import Browser
from tests.support.blocks import compressed, wire_block
from tests.support.broker.retries import RETRY, outcome
from tests.support.broker.running_broker import RunningBroker, StartBroker

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{ 7 * 7 }}"


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
    assert facts["Retries"] == "0"
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
    named = wire_block("orders", [b"x"], properties={HOSTILE: [HOSTILE]})
    await running_http.append_block("orders", 0, named)
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
        bomb = compressed("orders", zlib.compress(b"0" * (60 << 20), 9))
        await running.append_block("orders", 0, bomb)
        await running.append_block("orders", 0, compressed("orders", b"no stream"))
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
        "shipping has not consumed it yet. 1 older message is before it.",
    ]
    assert (await steps(running_http))[2] == "shipping has not consumed it yet. It is the next one."
    page = await Browser(running_http).page(f"{ONE}/1")
    assert "It has no unique id, so its retries and dead letters are not found" in page.text


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
    page = await Browser(running).page(f"{ONE}/0")
    assert "It has no unique id" not in page.text
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
    (given_up,) = await steps(running)
    assert given_up == "billing did not consume it, after 2 attempts: dead letter of billing"
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

"""Dead letters in the console: read, an edited copy, and sends of one or many once more."""

from __future__ import annotations

import zlib

from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.server.http.api.calls import RESENDS_MAX, Resends
from rocketpy_broker.server.http.console.renderer import time_shown
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, TAGS, UNIQ_KEY
from tests.broker.http.api_client import ask, get
from tests.broker.http.console.topic_browser import NONE, Browser
from tests.support.blocks import compressed, wire_block
from tests.support.broker.running_broker import RunningBroker

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'
DLQ = "%DLQ%billing"
LETTERS = "/groups/billing/dead-letters"


async def store(running: RunningBroker, *bodies: bytes, origin: str = "orders") -> None:
    """Stores dead letters of the group `billing`, and creates the topic of their first send."""
    await running.create_topic(DLQ, queues=1)
    await running.create_topic("orders", queues=1)
    for body in bodies:
        properties = {
            RETRY_TOPIC: [origin],
            ORIGIN_MESSAGE_ID: ["FIRST"],
            UNIQ_KEY: ["ID"],
            TAGS: ["paid"],
            KEYS: ["k-1 k-2"],
            "shop": ["3"],
        }
        await running.append_block(DLQ, 0, wire_block(DLQ, [body], properties=properties))


async def sent(running: RunningBroker, topic: str = "orders") -> list[dict[str, object]]:
    """Returns the messages of a topic's first queue."""
    path = f"/topics/{topic}/queues/0/messages?offsetEnd=1000"
    return list((await get(running, path))["messages"])


async def test_a_long_name_of_a_first_topic_is_cut_in_the_list(running_http: RunningBroker) -> None:
    await store(running_http, b"a", origin="<" * 30_000)
    seen = await Browser(running_http).get(LETTERS)
    assert len(seen.body) < 10_000


async def test_letters_are_listed_from_either_end(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, *(f"letter {number}".encode() for number in range(60)))

    async def shown(path: str) -> tuple[list[int], str]:
        page = await browser.page(path)
        offsets = [int(row[1]) for row in page.rows if row[1].isdecimal()]
        following = [target for target, text in page.links if text == "Next page"]
        return offsets, following[0] if following else ""

    newest, path = await shown(LETTERS)
    assert newest == [*range(59, 34, -1)]
    assert (await shown(path))[0] == [*range(34, 9, -1)]
    oldest, path = await shown(f"{LETTERS}?order=oldest")
    assert oldest == [*range(25)]
    middle, path = await shown(path)
    last, path = await shown(path)
    assert ([*middle, *last], path) == ([*range(25, 60)], "")
    assert (await shown(f"{LETTERS}?at=999"))[0] == newest
    page = await browser.page(LETTERS)
    assert "60 messages that the group could not consume" in page.text
    assert ["orders", "0", "paid", "k-1 k-2", "letter 59"] in [row[4:] for row in page.rows]
    for wrong in ("at=-1", "at=x", "at=99999999999999999999"):
        assert (await browser.get(f"{LETTERS}?{wrong}")).error[0] == 400


async def test_a_group_without_dead_letters(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    assert (await browser.get(LETTERS)).error[0] == 404
    await browser.done("/new/group", group="billing")
    assert "No dead letter." in (await browser.page(LETTERS)).text
    assert (await browser.get(f"{LETTERS}/0")).error[0] == 404
    assert (await browser.get(f"{LETTERS}/resend?offset=0")).error[0] == 400


async def test_a_letter_is_read(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, b'{"price": 3}', HOSTILE.encode(), b"\xff\0raw", b"x" * 300_000)
    page = await browser.page(f"{LETTERS}/0")
    assert page.link("orders") == "/topics/orders"
    assert ["shop", "3"] in page.rows
    assert ["Id", "ID"] in page.rows
    assert "price" in page.text
    for path in (LETTERS, f"{LETTERS}/1", f"{LETTERS}/1/copy"):
        seen = await browser.get(path)
        assert HOSTILE not in seen.body
        assert HOSTILE[:30] in seen.page.text
        assert not {"img", "onerror"} & {*seen.page.tags, *seen.page.attributes}
    assert "ff 00 72 61 77" in (await browser.page(f"{LETTERS}/2")).text
    assert len((await browser.get(f"{LETTERS}/3")).body) < 100_000
    for wrong, status in (("x", 400), ("-1", 400), ("9", 404), ("99999999999999999999", 400)):
        assert (await browser.get(f"{LETTERS}/{wrong}")).error[0] == status


async def test_a_bomb_and_a_broken_body_are_read_in_parts(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running)
    for body in (zlib.compress(b"a" * (64 << 20)), b"no zlib"):
        answer = await running.append_block(DLQ, 0, compressed(DLQ, body))
        assert answer.status.code == 0, answer.status.remark
    assert len((await browser.get(LETTERS)).body) < 20_000
    for offset in (0, 1):
        assert len((await browser.get(f"{LETTERS}/{offset}")).body) < 100_000
        assert "It is sent as it is." in (await browser.page(f"{LETTERS}/{offset}/copy")).text


async def test_one_letter_and_several_are_sent_again(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, b"a", b"b", b"c")
    await running.create_topic("other", queues=1)
    page = await browser.page(f"{LETTERS}/resend?offset=1")
    assert "Send 1 dead letter again?" in page.text
    done = await browser.done(f"{LETTERS}/resend?offset=1")
    assert "They stay here as dead letters." in done.text
    [message] = await sent(running)
    assert (message["body"], message["msgId"], message["tags"]) == ("b", "ID", "paid")
    page = await browser.page(f"{LETTERS}/resend?offset=0&offset=2")
    fields = {"token": page.fields["token"], "topic": "other"}
    pairs = [*fields.items(), ("offset", "0"), ("offset", "2")]
    seen = await browser.post(f"{LETTERS}/resend", pairs)  # type: ignore[arg-type]
    assert seen.status == 303
    assert [each["body"] for each in await sent(running, "other")] == ["a", "c"]
    assert len((await get(running, "/groups/billing/dead-letters"))["messages"]) == 3


async def test_many_letters_are_sent_in_steps(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, *(b"%d" % number for number in range(130)))
    page = await browser.page(LETTERS)
    path = page.link("Send all 130 again …")
    assert "Offsets 0 to 129" in (await browser.page(path)).text
    seen = await browser.submit(path)
    place = seen.headers["Location"]
    page = await browser.page(place)
    assert "The rest is left: go on here." in page.text
    assert "Send 30 dead letters again?" in page.text
    await browser.done(place)
    assert [each["body"] for each in await sent(running)] == [str(n) for n in range(130)]


async def test_a_failure_says_what_was_sent_and_loses_nothing(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, b"a", b"b")
    await store(running, b"lost", b"c", origin="gone")
    status, text = (await browser.submit(f"{LETTERS}/resend?begin=0&end=4")).error
    assert status == 404
    assert "2 of 4 dead letters sent. The letter at offset 2 was not sent:" in text
    assert "1 later letter not sent. All stay dead letters; nothing is lost." in text
    assert [each["body"] for each in await sent(running)] == ["a", "b"]
    for wrong in (
        "",
        "?offset=x",
        "?offset=9",
        "?begin=3&end=1",
        "?begin=0",
        "?begin=7&end=9",
        "?" + "&".join(f"offset={number}" for number in range(101)),
    ):
        assert (await browser.get(f"{LETTERS}/resend{wrong}")).error[0] == 400, wrong
    assert (await browser.submit(f"{LETTERS}/resend?offset=0", topic="gone")).error[0] == 404
    assert len(await sent(running)) == 2


async def test_an_edited_copy_is_another_message(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, b"\nfirst\nsecond")
    path = f"{LETTERS}/0/copy"
    done = await browser.done(
        path, body="changed\r\nline", keys="k-9", tags="", properties="shop=4\nnew= 1 "
    )
    assert "The copy is sent." in done.text
    [message] = await sent(running)
    assert (message["body"], message["keys"], message["tags"]) == ("changed\nline", ["k-9"], None)
    assert message["properties"] == {"shop": "4", "new": "1"}
    assert message["msgId"] != "ID"
    for wrong, status in (
        ({"properties": "no sign"}, 400),
        ({"properties": "=x"}, 400),
        ({"properties": "DELAY=3"}, 400),
        ({"properties": "a\x01b=c"}, 400),
        ({"topic": "gone"}, 404),
        ({"topic": "no such name"}, 404),
    ):
        assert (await browser.submit(path, **wrong)).error[0] == status, wrong
    assert len(await sent(running)) == 1


async def test_a_copy_keeps_what_a_form_cannot_hold(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running)
    properties = {RETRY_TOPIC: ["orders"], "lines": ["a\nb"], "plain": ["1"]}
    await running.append_block(DLQ, 0, wire_block(DLQ, [b"\xff\0"], properties=properties))
    page = await browser.page(f"{LETTERS}/0/copy")
    assert "Kept as they are: lines." in page.text
    await browser.done(f"{LETTERS}/0/copy", properties="")
    [message] = await sent(running)
    assert (message["bodyBase64"], message["properties"]) == ("/wA=", {"lines": "a\nb"})


async def test_the_api_sends_a_letter_to_a_topic_of_choice(running_http: RunningBroker) -> None:
    running = running_http
    await store(running, b"a")
    await running.create_topic("other", queues=1)
    path = f"{LETTERS}/0/resend"
    reply = await ask(running, "POST", path, {"topic": "other"})
    assert (reply.status, reply.json["topic"]) == (200, "other")
    assert [each["body"] for each in await sent(running, "other")] == ["a"]
    bodies: list[object] = [{"topic": ""}, {"topic": 3}, {"topic": "\ud800"}, {"other": "x"}, []]
    for wrong in bodies:
        error = (await ask(running, "POST", path, wrong)).error
        assert error == (400, ResponseCode.INVALID_PARAMETER)
    missing = await ask(running, "POST", path, {"topic": "gone"})
    assert missing.error == (404, ResponseCode.TOPIC_NOT_EXIST)


async def test_a_letter_that_was_sent_again_is_marked(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await store(running, b"a", b"b", b"c", b"d")
    await browser.done(f"{LETTERS}/resend?offset=1")
    await browser.done(f"{LETTERS}/2/copy", body="changed")
    reply = await ask(running, "POST", "/groups/billing/dead-letters/3/resend", {})
    assert reply.status == 200
    now = time_shown(time_of_ms(running.clock.now_ms()))
    rows = (await browser.page(LETTERS)).rows
    marks = {row[1]: row[3] for row in rows if row[1].isdecimal()}
    assert marks == {"0": NONE, "1": now, "2": now, "3": now}
    assert ["Sent again", now] in (await browser.page(f"{LETTERS}/1")).rows
    # Letters of a later topic with the same name are other letters.
    await browser.done("/topics/%25DLQ%25billing/delete")
    await store(running, b"e", b"f")
    rows = (await browser.page(LETTERS)).rows
    assert {row[3] for row in rows if row[1].isdecimal()} == {NONE}


def test_the_newest_sends_of_letters_are_noted() -> None:
    resends = Resends()
    for number in range(RESENDS_MAX + 2):
        resends.add(number, 1_000 + number)
    assert (resends.sent_ms(1), resends.sent_ms(2)) == (None, 1_002)

"""Forms that the broker refuses, and long forms."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketpy_broker.server.http.console.endpoint import FORM_BYTES_MAX
from rocketpy_broker.server.http.console.pages.send_form import BODY_CHARACTERS_MAX
from rocketpy_broker.server.http.console.request import address
from tests.broker.http.console.messages.test_dead_letters import sent, store
from tests.broker.http.console.test_topic_actions import messages
from tests.broker.http.console.topic_browser import Browser, Seen
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.clients.users import GROUP, SECRETS, TOPIC, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker

SEND = "/topics/orders/send"
TEXT = '\n"><script>alert(1)</script>&\n'


def alert(seen: Seen) -> str:
    """Returns the text of the error on a page."""
    assert seen.body.count('role="alert"') == 1
    return seen.body.partition('role="alert">')[2].partition("</p>")[0]


async def refused(browser: Browser, path: str, status: int, **fields: str) -> Seen:
    """Submits a form that is refused; checks that it is shown again as it was filled in."""
    seen = await browser.submit(path, **fields)
    assert seen.status == status, seen.page.text
    assert alert(seen)
    assert seen.page.texts["title"][0].startswith("Refused: ")
    assert {name: seen.page.fields.get(name) for name in fields} == fields
    return seen


@pytest.mark.parametrize(
    ("path", "status", "fields"),
    [
        ("/new/topic", 409, {"topic": "orders", "queues": "3", "permission": "4"}),
        ("/new/topic", 400, {"topic": "a b", "message_type": "FIFO"}),
        ("/topics/orders/edit", 400, {"read_queues": "0", "write_queues": "-1", "order": "on"}),
        ("/topics/orders/edit", 400, {"reserve_time": "an hour", "permission": "2"}),
        (SEND, 400, {"queue": "7", "tags": "t", "keys": "k", "properties": "a=b\nc=d"}),
        (SEND, 400, {"deliver_at": "soon", "delay_level": "2", "message_group": "g"}),
        (SEND, 400, {"properties": "no sign", "body": TEXT, "transaction": "leave-open"}),
        ("/new/group", 400, {"group": "a b", "retry_max_times": "3", "broker_id": "1"}),
        ("/groups/billing/edit", 400, {"retry_max_times": "x"}),
        ("/groups/billing/delete", 409, {"keep": "on"}),
    ],
)
async def test_a_refused_form_is_shown_again_as_it_was_filled_in(
    running_http: RunningBroker, path: str, status: int, fields: dict[str, str]
) -> None:
    await running_http.create_topic("orders", queues=1)
    await heartbeat(running_http, "c-1", consumer("billing", "orders"))
    browser = Browser(running_http)
    seen = await refused(browser, path, status, **fields)
    assert "<script>alert" not in seen.body
    # The form has a token: it can be corrected and sent.
    again = await browser.post(path, {**seen.page.fields})
    assert again.status == status


async def test_a_box_that_was_cleared_stays_clear(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    form = await browser.page("/new/group")
    fields = {name: text for name, text in form.fields.items() if name != "consume_enable"}
    seen = await browser.post("/new/group", {**fields, "group": "a b"})
    assert "consume_enable" not in seen.page.fields
    assert seen.page.fields["consume_broadcast_enable"] == "on"


async def test_a_refused_form_can_be_corrected(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    browser = Browser(running_http)
    seen = await refused(browser, SEND, 400, body="kept", queue="7")
    done = await browser.post(SEND, {**seen.page.fields, "queue": "0"})
    assert done.status == 303
    assert [each["body"] for each in await messages(running_http)] == ["kept"]


async def test_a_form_of_an_earlier_start_keeps_its_text(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    browser = Browser(running_http)
    form = await browser.page(SEND)
    seen = await browser.post(SEND, {**form.fields, "token": "0" * 64, "body": "kept"})
    assert seen.status == 403
    assert "repeat the action" in alert(seen)
    assert await messages(running_http) == []
    assert (await browser.post(SEND, seen.page.fields)).status == 303
    assert [each["body"] for each in await messages(running_http)] == ["kept"]


async def test_a_reset_that_is_refused_shows_its_effect_again(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await running_http.append("orders", 0, b"a", b"b")
    await heartbeat(running_http, "c-1", consumer("billing", "orders"))
    browser = Browser(running_http)
    path = "/groups/billing/reset?topic=orders&to=latest"
    seen = await browser.submit(path)
    assert seen.status == 409
    assert "Messages skipped 2" in seen.page.text
    # A preview of no legal time shows the form, too.
    seen = await browser.get("/groups/billing/reset?topic=orders&to=time&time=soon")
    assert seen.status == 400
    assert "soon" in alert(seen)
    assert seen.page.fields["time"] == "soon"


@pytest.mark.parametrize(
    "fields",
    [{"offset": "3"}, {"queue": "0", "offset": "x"}, {"queue": "0", "time": "<b>soon</b>"}],
)
async def test_a_search_that_is_refused_is_shown_again(
    running_http: RunningBroker, fields: dict[str, str]
) -> None:
    await running_http.create_topic("orders", queues=1)
    path = address("/topics/orders/messages", **fields)
    seen = await Browser(running_http).get(path)
    assert seen.status == 400
    assert alert(seen)
    assert "<b>" not in seen.body
    assert {name: seen.page.fields[name] for name in fields} == fields


async def test_a_resend_that_fails_in_its_middle_offers_the_rest(
    running_http: RunningBroker,
) -> None:
    await store(running_http, b"a")
    await store(running_http, b"b", origin="missing")
    await store(running_http, b"c")
    browser = Browser(running_http)
    seen = await browser.submit("/groups/billing/dead-letters/resend?begin=0&end=3")
    assert seen.status == 404
    assert "1 of 3 dead letters sent. The letter at offset 1 was not sent" in alert(seen)
    assert (seen.page.fields["begin"], seen.page.fields["end"]) == ("1", "3")
    done = await browser.post(
        "/groups/billing/dead-letters/resend", {**seen.page.fields, "topic": "orders"}
    )
    assert done.status == 303
    assert [each["body"] for each in await sent(running_http)] == ["a", "b", "c"]


async def test_a_user_without_the_permission_sees_the_form_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        admin = Browser(running, ("admin", SECRETS["admin"]))
        await admin.done("/new/topic", topic=TOPIC, queues="1")
        await admin.done("/new/group", group=GROUP)
        reader = Browser(running, ("reader", SECRETS["reader"]))
        seen = await refused(reader, f"/topics/{TOPIC}/send", 403, body="kept")
        assert "lacks the permission PUB" in alert(seen)


# --- Long forms ---


@pytest.mark.parametrize("letter", ["ä", "€", "x", "\n"])
async def test_a_body_of_all_characters_of_its_field_is_sent(
    running_http: RunningBroker, letter: str
) -> None:
    await running_http.create_topic("orders", queues=1)
    browser = Browser(running_http)
    assert f'maxlength="{BODY_CHARACTERS_MAX}"' in (await browser.get(SEND)).body
    # A browser sends the ends of lines as CR LF.
    text = letter * BODY_CHARACTERS_MAX
    await browser.done(SEND, body=text.replace("\n", "\r\n"), properties="a=" + "b" * 20_000)
    [message] = await messages(running_http)
    assert message["body"] == text


@pytest.mark.parametrize("size", [FORM_BYTES_MAX, 1_000_000])
async def test_a_form_that_is_too_long_is_answered(running_http: RunningBroker, size: int) -> None:
    await running_http.create_topic("orders", queues=1)
    seen = await Browser(running_http).submit(SEND, body="x" * size)
    assert seen.status == 413
    assert "the form is too long, limit 256 KiB" in alert(seen)
    assert await messages(running_http) == []


async def test_a_long_form_of_another_site_is_answered(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    body, host = b"x" * (1 << 20), "127.0.0.1"
    reader, writer = await asyncio.open_connection(host, running_http.ready.http_port)
    head = f"POST {SEND} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    assert b" 403 " in await reader.readline()
    writer.close()


async def test_names_that_are_words_of_addresses_have_pages(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    for name in ("new", "edit", "static"):
        page = await browser.done("/new/topic", topic=name)
        assert page.texts["h1"] == [name]
        assert (await browser.page(f"/topics/{name}/send")).names >= {"body"}
        page = await browser.done("/new/group", group=name)
        assert page.texts["h1"] == [f"Group {name}"]
        await browser.done(f"/groups/{name}/edit", retry_max_times="3")

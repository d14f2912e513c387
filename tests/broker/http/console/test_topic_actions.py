"""Actions on topics: create, change, empty, delete, and send a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.config import ConsoleMode
from tests.broker.http.api_client import get
from tests.broker.http.console.test_topics import commit
from tests.broker.http.console.topic_browser import Browser
from tests.support.broker.clients.users import SECRETS, TOPIC, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker

FORMS = ("/new/topic", *(f"/topics/orders/{name}" for name in ("edit", "empty", "delete", "send")))
SETTINGS = {"queues": "2", "message_type": "", "permission": "6"}


async def topics(running: RunningBroker) -> list[str]:
    return [each["topic"] for each in (await get(running, "/topics"))["configs"]]


async def messages(running: RunningBroker) -> list[dict[str, object]]:
    """Returns all messages of the topic `orders`."""
    queues = (await get(running, "/topics/orders/queues"))["queues"]
    found: list[dict[str, object]] = []
    for each in queues:
        path = f"/topics/orders/queues/{each['queueId']}/messages"
        found += (await get(running, f"{path}?offset={each['minOffset']}"))["messages"]
    return found


# --- Topics ---


async def test_a_topic_is_created_changed_and_deleted(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    form = await browser.page("/new/topic")
    assert form.fields["queues"] == "8"
    page = await browser.done("/new/topic", topic="orders", queues="2", message_type="FIFO")
    assert "The topic is created." in page.text
    found = await get(running_http, "/topics/orders")
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (2, 2, 6)
    assert found["attributes"] == {"message.type": "FIFO"}
    page = await browser.done(
        "/topics/orders/edit",
        read_queues="3",
        write_queues="1",
        permission="4",
        message_type="",
        reserve_time="60000",
        order="on",
    )
    assert "The topic is changed." in page.text
    found = await get(running_http, "/topics/orders")
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (3, 1, 4)
    assert (found["attributes"], found["order"]) == ({"reserve.time": "60000"}, True)
    form = await browser.page("/topics/orders/edit")
    assert form.fields["permission"] == "4"
    assert (form.fields["reserve_time"], form.fields["order"]) == ("60000", "on")
    await browser.done("/topics/orders/edit", reserve_time="")
    assert (await get(running_http, "/topics/orders"))["attributes"] == {}
    page = await browser.done("/topics/orders/delete")
    assert "The topic is deleted." in page.text
    assert await topics(running_http) == []


async def test_a_change_of_nothing_changes_nothing(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    await browser.done("/new/topic", topic="orders", message_type="DELAY")
    before = await get(running_http, "/topics/orders")
    await browser.done("/topics/orders/edit")
    assert await get(running_http, "/topics/orders") == before


async def test_an_action_names_what_is_lost(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    browser = Browser(running_http)
    page = await browser.page("/topics/orders/delete")
    assert "Delete topic orders with 0 messages" in page.texts["button"][-1]
    assert "No group has progress in it." in page.text
    await running_http.append("orders", 0, *[b"x"] * 1_234)
    await commit(running_http, "billing", "orders", 0, 3)
    page = await browser.page("/topics/orders/delete")
    assert page.texts["button"][-1] == "Delete topic orders with 1,234 messages"
    assert page.link("billing") == "/groups/billing"
    page = await browser.page("/topics/orders/empty")
    assert page.texts["button"][-1] == "Empty topic orders of 1,234 messages"
    page = await browser.done("/topics/orders/empty")
    assert "The topic is empty." in page.text
    [queue] = (await get(running_http, "/topics/orders/queues"))["queues"]
    assert (queue["minOffset"], queue["maxOffset"]) == (1_234, 1_234)


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/new/topic", {"topic": "orders"}, 409),
        ("/new/topic", {"topic": ""}, 400),
        ("/new/topic", {"topic": "<script>alert(1)</script>"}, 400),
        ("/new/topic", {"topic": "a b"}, 400),
        ("/new/topic", {"topic": "é"}, 400),
        ("/new/topic", {"topic": "a" * 200}, 400),
        ("/new/topic", {"topic": "SCHEDULE_TOPIC_XXXX"}, 400),
        ("/new/topic", {"topic": "a", "queues": ""}, 400),
        ("/new/topic", {"topic": "a", "queues": "0"}, 400),
        ("/new/topic", {"topic": "a", "queues": "-1"}, 400),
        ("/new/topic", {"topic": "a", "queues": "99999999999"}, 400),
        ("/new/topic", {"topic": "a", "permission": "64"}, 400),
        ("/new/topic", {"topic": "a", "message_type": "LITE"}, 400),
        ("/topics/orders/edit", {"read_queues": "x"}, 400),
        ("/topics/orders/edit", {"write_queues": "1.5"}, 400),
        ("/topics/orders/edit", {"reserve_time": "an hour"}, 400),
        ("/topics/orders/edit", {"message_type": "<b>"}, 400),
    ],
)
async def test_settings_that_are_not_legal_change_nothing(
    running_http: RunningBroker, path: str, fields: dict[str, str], status: int
) -> None:
    await running_http.create_topic("orders", queues=1)
    before = await get(running_http, "/topics")
    seen = await Browser(running_http).submit(path, **fields)
    assert seen.error[0] == status, seen.page.text
    assert "<b>" not in seen.body
    assert "<script>alert" not in seen.body
    assert await get(running_http, "/topics") == before


@pytest.mark.parametrize("name", ["edit", "empty", "delete", "send"])
async def test_a_form_of_no_topic_is_an_error(running_http: RunningBroker, name: str) -> None:
    browser = Browser(running_http)
    form = await browser.page("/new/topic")
    for topic in ("none", "%ff"):
        assert (await browser.get(f"/topics/{topic}/{name}")).error[0] == 404
        token = {"token": form.fields["token"]}
        assert (await browser.post(f"/topics/{topic}/{name}", token)).error[0] == 404


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-a"])
async def test_a_topic_of_the_broker_is_not_changed(
    running_http: RunningBroker, topic: str
) -> None:
    browser = Browser(running_http)
    page = await browser.page(f"/topics/{topic}")
    assert "it cannot be changed, emptied or deleted" in page.text
    assert f"/topics/{topic}/delete" not in {target for target, _ in page.links}
    token = {"token": (await browser.page("/new/topic")).fields["token"]}
    for name in ("empty", "delete"):
        page = await browser.page(f"/topics/{topic}/{name}")
        assert "refuses to have it" in page.text
        assert "form" not in page.tags
        seen = await browser.post(f"/topics/{topic}/{name}", token)
        assert seen.error[0] == 400
        assert "the broker's own" in seen.page.text
    assert (await browser.get(f"/topics/{topic}")).status == 200


@pytest.mark.parametrize(
    ("topic", "loss"),
    [
        ("%RETRY%billing", "group billing failed to consume them and would get them again"),
        ("%DLQ%billing", "the dead letters of group billing"),
        ("orders", ""),
    ],
)
async def test_the_loss_of_a_groups_own_messages_is_named(
    running_http: RunningBroker, topic: str, loss: str
) -> None:
    await running_http.create_topic(topic, queues=1)
    await running_http.append(topic, 0, b"x")
    browser, path = Browser(running_http), topic.replace("%", "%25")
    for name in ("empty", "delete"):
        page = await browser.page(f"/topics/{path}/{name}")
        assert page.text.count("Its messages are") == bool(loss)
        assert loss in page.text
        await browser.done(f"/topics/{path}/{name}")
    assert (await browser.get(f"/topics/{path}")).status == 404


# --- Access ---


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_without_its_token_is_refused(running_http: RunningBroker, path: str) -> None:
    await running_http.create_topic("orders", queues=1)
    browser = Browser(running_http)
    form = await browser.page(path)
    fields = {**form.fields, "topic": "new", "body": "x"}
    for token in ("", "0" * 64, "é"):
        seen = await browser.post(path, {**fields, "token": token})
        assert seen.error[0] == 403
    other = Browser(running_http)
    assert (await other.post(path, fields)).error[0] == 403
    assert await topics(running_http) == ["orders"]
    assert await messages(running_http) == []


async def test_a_console_that_only_reads_has_no_forms(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0, console=ConsoleMode.READ_ONLY) as running:
        await running.create_topic("orders", queues=1)
        await running.append("orders", 0, b"a")
        browser = Browser(running)
        for path in ("/topics", "/topics/orders", "/topics/orders/messages"):
            page = await browser.page(path)
            targets = {target for target, _ in page.links}
            assert not targets & set(FORMS), path
        for path in FORMS:
            assert (await browser.get(path)).status == 404
            assert (await browser.post(path, {"token": ""})).status in {404, 405}
        assert await topics(running) == ["orders"]


async def test_users_without_permission_change_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        admin = Browser(running, ("admin", SECRETS["admin"]))
        await admin.done("/new/topic", topic=TOPIC, queues="1")
        reader = Browser(running, ("reader", SECRETS["reader"]))
        base = f"/topics/{TOPIC}"
        for path, fields in [
            ("/new/topic", {"topic": "other"}),
            (f"{base}/edit", {"read_queues": "5"}),
            (f"{base}/empty", {}),
            (f"{base}/delete", {}),
            (f"{base}/send", {"body": "x"}),
        ]:
            seen = await reader.submit(path, **fields)
            assert seen.error[0] == 403, path
        page = await admin.page(base)
        assert "Read queues 1" in page.text
        assert "Messages 0" in page.text
        writer = Browser(running, ("writer", SECRETS["writer"]))
        assert (await writer.submit(f"{base}/send", body="x")).status == 303
        assert "Messages 1" in (await admin.page(base)).text
        nobody = Browser(running, ("nobody", "wrong"))
        assert (await nobody.get(f"{base}/send")).status == 401


# --- Sends ---


async def test_a_message_is_sent_and_its_place_shown(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=3)
    page = await Browser(running_http).done(
        "/topics/orders/send",
        body="first\r\nline é",
        tags=" paid ",
        keys="k1  k2",
        properties="shop = 3\r\n\r\nnote=a=b",
        queue="2",
    )
    assert "The message is sent." in page.text
    assert page.texts["pre"][0] == "first\nline é"
    [message] = await messages(running_http)
    assert (message["queueId"], message["tags"], message["keys"]) == (2, "paid", ["k1", "k2"])
    properties = message["properties"]
    assert isinstance(properties, dict)
    assert (properties["shop"], properties["note"]) == ("3", "a=b")


async def test_messages_of_a_group_go_to_one_queue(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    await browser.done("/new/topic", topic="orders", queues="8", message_type="FIFO")
    assert (await browser.submit("/topics/orders/send", body="x")).error[0] == 400
    for body in ("a", "b"):
        await browser.done("/topics/orders/send", body=body, message_group="customer-7")
    found = await messages(running_http)
    assert [each["body"] for each in found] == ["a", "b"]
    assert len({each["queueId"] for each in found}) == 1


@pytest.mark.parametrize("wait", [{"delay_level": "3"}, {"deliver_at": "2100-01-01T00:00"}])
async def test_a_delayed_message_is_shown_where_it_waits(
    start_broker: StartBroker, wait: dict[str, str]
) -> None:
    async with start_broker(http_port=0, timer_delay_ms_max=10**13) as running:
        await running.create_topic("orders", queues=1)
        form = await Browser(running).page("/topics/orders/send")
        assert "3: after 10 s" in form.text
        page = await Browser(running).done("/topics/orders/send", body="later", **wait)
        assert "Not delivered yet" in page.text
        assert await messages(running) == []


@pytest.mark.parametrize(("end", "count"), [("commit", 1), ("leave-open", 0)])
async def test_a_message_is_sent_in_a_transaction(
    running_http: RunningBroker, end: str, count: int
) -> None:
    browser = Browser(running_http)
    await browser.done("/new/topic", topic="orders", queues="1", message_type="TRANSACTION")
    assert (await browser.page("/topics/orders/send")).fields["transaction"] == "commit"
    page = await browser.done("/topics/orders/send", body="paid", transaction=end)
    assert ("Not delivered yet" in page.text) == (count == 0)
    assert len(await messages(running_http)) == count
    transactions = (await get(running_http, "/transactions"))["transactions"]
    assert [each["producerGroup"] for each in transactions] == ["rocketpy-console"] * (1 - count)


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": "7"},
        {"queue": "x"},
        {"queue": "99999999999"},
        {"delay_level": "-1"},
        {"delay_level": "1", "deliver_at": "2100-01-01T00:00"},
        {"deliver_at": "soon"},
        {"properties": "no sign"},
        {"properties": "=3"},
        {"properties": "DELAY=3"},
        {"properties": "a=\x01b"},
        {"tags": "a\x02"},
        {"transaction": "perhaps"},
    ],
)
async def test_a_message_of_another_form_is_not_sent(
    running_http: RunningBroker, fields: dict[str, str]
) -> None:
    await running_http.create_topic("orders", queues=1)
    seen = await Browser(running_http).submit("/topics/orders/send", body="x", **fields)
    assert seen.error[0] == 400
    assert await messages(running_http) == []

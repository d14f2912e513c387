"""The list of topics, and the page of one topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.http.console.topic_browser import NONE, Browser
from tests.support.broker.clients.users import SECRETS, TOPIC, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def commit(running: RunningBroker, group: str, topic: str, queue_id: int, to: int) -> None:
    """Commits the offset of a group."""
    offset = broker_pb2.CommittedOffset(topic=topic, queue_id=queue_id, offset=to)
    request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=[offset])
    answer = await running.data.CommitOffsets(request)
    assert answer.status.code == 0, answer.status.remark


async def test_the_list_has_types_queues_permissions_and_counts(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=2)
    config = admin_pb2.TopicConfig(topic="audit", read_queue_nums=1, write_queue_nums=3, perm=4)
    config.attributes["+message.type"] = "FIFO"
    await running_http.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    await running_http.append("orders", 0, b"a", b"b")
    await running_http.append("orders", 1, b"c")
    page = await Browser(running_http).page("/topics")
    head, *rows = page.rows
    assert head == ["Topic", "Type", "Permission", "Queues", "Messages", "In per second"]
    assert rows == [
        ["audit", "FIFO", "read", "1 / 3", "0", NONE],
        ["orders", "any", "read, write", "2", "3", "0.0"],
    ]
    assert page.link("orders") == "/topics/orders"
    assert page.link("Create a topic") == "/new/topic"


async def test_the_list_has_the_rate_of_the_last_minute(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    statistics = running_http.broker.services.statistics
    await running_http.append("orders", 0, *[b"x"] * 60)
    for _ in range(6):
        running_http.clock.advance(10_000)
        await statistics.sample()
    page = await Browser(running_http).page("/topics")
    assert float(page.rows[1][-1]) > 0
    page = await Browser(running_http).page("/topics/orders")
    assert "In per second 1." in page.text
    assert f"Out per second {NONE}" in page.text
    await commit(running_http, "billing", "orders", 0, 0)
    await running_http.pull(topic="orders", queue_id=0, consumer_group="billing")
    for _ in range(6):
        running_http.clock.advance(10_000)
        await statistics.sample()
    page = await Browser(running_http).page("/topics/orders")
    assert "Out per second 1." in page.text
    assert page.rows[1][2].startswith("1.")


async def test_the_list_is_paged_and_searched_by_the_start_of_a_name(
    running_http: RunningBroker,
) -> None:
    for number in range(103):
        await running_http.create_topic(f"orders-{number:03}", queues=1)
    for name in ("order", "ordert", "Orders-1", "other"):
        await running_http.create_topic(name, queues=1)
    browser = Browser(running_http)
    first = await browser.page("/topics?prefix=orders-")
    assert [row[0] for row in first.rows[1:]] == [f"orders-{number:03}" for number in range(100)]
    assert first.fields["prefix"] == "orders-"
    second = await browser.page(first.link("Next page"))
    assert [row[0] for row in second.rows[1:]] == ["orders-100", "orders-101", "orders-102"]
    assert "Next page" not in second.text
    found = await browser.page("/topics?prefix=orders-10")
    assert [row[0] for row in found.rows[1:]] == ["orders-100", "orders-101", "orders-102"]
    nothing = await browser.page("/topics?prefix=zzz")
    assert "No topic has a name that starts with this." in nothing.text


async def test_the_list_has_the_brokers_own_topics_on_request(
    running_http: RunningBroker,
) -> None:
    browser = Browser(running_http)
    assert "No topic." in (await browser.page("/topics")).text
    page = await browser.page("/topics?system=on")
    assert "SCHEDULE_TOPIC_XXXX" in [row[0] for row in page.rows]
    assert page.fields["system"] == "on"
    # More queues than are counted for one list.
    assert (await browser.get("/topics?system=on&prefix=SCHEDULE")).page.rows[1][0].startswith("S")


async def test_a_topic_has_its_queues_and_groups_with_their_lag(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=2)
    await running_http.append("orders", 0, b"a", b"b", b"c")
    await running_http.append("orders", 1, b"d")
    await commit(running_http, "billing", "orders", 0, 2)
    await commit(running_http, "shipping", "orders", 0, 3)
    await commit(running_http, "shipping", "orders", 1, 1)
    page = await Browser(running_http).page("/topics/orders")
    assert "Messages 4" in page.text
    groups, queues = page.rows[1:3], page.rows[4:]
    assert [row[:2] for row in groups] == [["billing", "2"], ["shipping", "0"]]
    assert [row[:4] for row in queues] == [["0", "0", "3", "3"], ["1", "0", "1", "1"]]
    assert all(row[4].startswith("2") for row in queues)
    assert page.link("billing") == "/groups/billing"
    for text, target in [("Messages", "messages"), ("Change", "edit"), ("Delete", "delete")]:
        assert page.link(text) == f"/topics/orders/{target}"
    assert page.link("Send a message") == "/topics/orders/send"
    assert page.link("Empty") == "/topics/orders/empty"


async def test_queues_and_groups_are_paged(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=120)
    for number in range(23):
        await commit(running_http, f"group-{number:02}", "orders", 0, 0)
    browser = Browser(running_http)
    page = await browser.page("/topics/orders")
    assert (len(page.rows), page.rows[20][0], page.rows[-1][0]) == (122, "group-19", "99")
    page = await browser.page(page.link("Next groups"))
    assert [row[0] for row in page.rows[1:4]] == ["group-20", "group-21", "group-22"]
    page = await browser.page(page.link("Next queues"))
    assert (page.rows[1][0], page.rows[5][0], page.rows[-1][0]) == ("group-20", "100", "119")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/none", 404),
        ("/topics/%3Cscript%3E", 404),
        ("/topics/%ff", 404),
        ("/topics/%00", 400),
        ("/topics/a%2Fb", 404),
        ("/topics/orders?queue=7", 400),
        ("/topics/orders?queue=99999999999", 400),
        ("/topics/orders?queue=-1", 400),
        ("/topics/orders?queue=%3Cb%3E", 400),
        ("/topics/orders?group=%00", 400),
        ("/topics?after=%00", 400),
        ("/topics?prefix=%00", 400),
        ("/topics?prefix=" + "a" * 300, 400),
    ],
)
async def test_a_bad_address_has_an_error_page(
    running_http: RunningBroker, path: str, status: int
) -> None:
    await running_http.create_topic("orders", queues=4)
    seen = await Browser(running_http).get(path)
    assert seen.error[0] == status
    assert "script" not in seen.page.texts.get("main", [""])[0].replace("<script>", "")


async def test_users_see_the_figures_that_they_may_read(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        admin = Browser(running, ("admin", SECRETS["admin"]))
        await admin.done("/new/topic", topic="other", queues="1")
        await admin.done("/new/topic", topic=TOPIC, queues="1")
        assert (await admin.page("/topics")).rows[1][4] == "0"
        reader = Browser(running, ("reader", SECRETS["reader"]))
        settings = "any", "read, write", "1"
        assert (await reader.page("/topics")).rows[1:] == [
            [TOPIC, *settings, "0", NONE],
            ["other", *settings, NONE, NONE],
        ]
        assert "Messages 0" in (await reader.page(f"/topics/{TOPIC}")).text
        writer = Browser(running, ("writer", SECRETS["writer"]))
        assert (await writer.page("/topics")).rows[1][4] == NONE
        assert f"Messages {NONE}" in (await writer.page(f"/topics/{TOPIC}")).text
        monitor = Browser(running, ("monitor", SECRETS["monitor"]))
        assert (await monitor.get(f"/topics/{TOPIC}")).error[0] == 403
        assert (await Browser(running).get("/topics")).status == 401

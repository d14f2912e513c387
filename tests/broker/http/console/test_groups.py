"""Groups in the console: the list, one group, reasons for lag, and changes of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.config import ConsoleMode
from rocketpy_broker.services.groups.clients.consumers import ConsumerData
from rocketpy_broker.services.groups.clients.registry import Heartbeat
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.rocketpy.v1 import broker_pb2, groups_pb2
from tests.broker.http.console.topic_browser import Browser
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.clients.users import GROUP, SECRETS, TOPIC, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker

NONE = "\u2013"
HOSTILE = '"><script>alert(1)</script>&'


async def commit(
    running: RunningBroker,
    group: str,
    topic: str,
    *offsets: int,
    report: broker_pb2.SparkReport | None = None,
) -> None:
    """Commits offsets of a topic's first queues."""
    entries = [
        broker_pb2.CommittedOffset(topic=topic, queue_id=queue_id, offset=offset)
        for queue_id, offset in enumerate(offsets)
    ]
    request = broker_pb2.CommitOffsetsRequest(
        consumer_group=group, offsets=entries, spark_report=report
    )
    answer: broker_pb2.CommitOffsetsResponse = await running.data.CommitOffsets(request)
    assert answer.status.code == 0, answer.status.remark


async def fill(running: RunningBroker, topic: str = "orders") -> None:
    """Creates a topic of two queues with three messages and one message."""
    assert await running.create_topic(topic, queues=2) == 0
    await running.append(topic, 0, b"a", b"b", b"c")
    await running.append(topic, 1, b"d")


async def test_the_list_has_members_topics_and_lag_and_finds_names(
    running_http: RunningBroker,
) -> None:
    running, browser = running_http, Browser(running_http)
    assert "No group." in (await browser.page("/groups")).text
    await fill(running)
    await commit(running, "billing", "orders", 1)
    await heartbeat(running, "c-1", consumer("mail", "orders"))
    page = await browser.page("/groups")
    rows = [row for row in page.rows if row[0] in {"billing", "mail"}]
    assert rows == [
        ["billing", "0", NONE, "orders", "3"],
        ["mail", "1", "CLUSTERING", "orders", "4"],
    ]
    assert page.link("billing") == "/groups/billing"
    assert [row[0] for row in (await browser.page("/groups?prefix=ma")).rows] == ["Group", "mail"]
    assert "CID_RMQ_SYS_TRANS" in (await browser.page("/groups?system=on&prefix=CID")).text


async def test_a_group_shows_members_subscriptions_queues_and_settings(
    running_http: RunningBroker,
) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await heartbeat(running, "c-1", consumer("billing", "orders"))
    await commit(running, "billing", "orders", 1)
    page = await browser.page("/groups/billing")
    assert ["0", "0", "1", "3"] in [row[:4] for row in page.rows]
    assert ["1", "0", NONE, "1"] in [row[:4] for row in page.rows]
    [member] = [row for row in page.rows if row[0] == "c-1"]
    assert member[2:4] == ["PYTHON", "473"]
    assert ["orders", "TAG", "*"] in page.rows
    assert ["retryMaxTimes", "16"] in page.rows
    assert "1 queue of topic orders without an owner" in page.text
    assert (await browser.get("/groups/missing")).error[0] == 404


async def test_many_topics_and_queues_are_paged(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    for number in range(52):
        await running.create_topic(f"t-{number:02}", queues=1)
        await commit(running, "billing", f"t-{number:02}", 0)
    page = await browser.page("/groups/billing")
    assert "t-50" not in page.text
    assert "t-51" in (await browser.page(page.link("More topics"))).text
    await running.create_topic("wide", queues=70)
    await commit(running, "wide-readers", "wide", 0)
    page = await browser.page("/groups/wide-readers")
    later = await browser.page(page.link("More queues").partition("#")[0])
    assert [row[0] for row in later.rows if row[0].isdecimal()] == [str(n) for n in range(64, 70)]


async def test_a_group_of_10_000_members_shows_some(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        join = running.broker.services.groups.clients.heartbeat
        data = ConsumerData(
            "crowd",
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            [Subscription.of("orders", "TAG", "*", 1)],
        )
        for number in range(10_000):
            await join(Heartbeat(f"c-{number:05}", "10.0.0.1:1", (), [data]))
        browser = Browser(running)
        seen = await browser.get("/groups/crowd")
        assert len(seen.body) < 100_000
        page = seen.page
        assert "100 of 10,000 members are shown" in page.text
        later = await browser.page(page.link("More members").partition("#")[0])
        assert "c-00100" in later.text
        assert "c-00099" not in later.text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("away", "The group has no members: nothing reads for it."),
        ("other", "The members do not subscribe to orders (4 messages)."),
        ("quiet", "have committed nothing in orders (4 messages) for 2 min"),
        ("done", "It does not lag."),
        ("reader", "a program commits its progress"),
        ("off", "consumeEnable is off"),
        ("many", "1 member more than queues"),
    ],
)
async def test_a_group_says_why_it_lags(
    running_http: RunningBroker, name: str, reason: str
) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await commit(running, name, "orders", *((3, 1) if name == "done" else (0, 0)))
    if name in {"away", "quiet"}:
        running.clock.advance(120_000)
    if name == "other":
        await running.create_topic("invoices")
        await heartbeat(running, "c-1", consumer(name, "invoices"))
    if name == "off":
        config = groups_pb2.GroupConfig(consumer_group=name, consume_enable=False)
        await running.groups.UpdateGroup(groups_pb2.UpdateGroupRequest(config=config))
    for number in range({"quiet": 1, "many": 3}.get(name, 0)):
        await heartbeat(running, f"c-{number}", consumer(name, "orders"))
    assert reason in (await browser.page(f"/groups/{name}")).text


async def test_a_spark_query_is_known_by_its_reports(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    first = broker_pb2.SparkReport(token=7, driver_host="driver-1")
    await commit(running, "query", "orders", 1, 0, report=first)
    page = await browser.page("/groups/query")
    assert "Spark query" in page.text
    assert "driver-1" in page.text
    assert f"Messages {NONE}" in page.text
    second = broker_pb2.SparkReport(token=8, driver_host=HOSTILE)
    # A report of many queues comes in parts.
    await commit(running, "query", "orders", 3, report=second)
    await commit(running, "query", "orders", 3, 1, report=second)
    page = await browser.page("/groups/query")
    assert "Messages 3" in page.text
    assert HOSTILE in page.text
    assert not any(page.texts["script"])
    await running.append("orders", 0, b"e")
    running.clock.advance(3_600_000)
    text = (await browser.page("/groups/query")).text
    assert "The Spark query has reported no progress for 1 h." in text
    await running.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(consumer_group="query"))
    await commit(running, "query", "orders", 1)
    assert "Spark" not in (await browser.page("/groups/query")).text


async def test_a_client_of_hostile_text_is_shown_as_text(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await running.create_topic("orders")
    subscription = groups_pb2.Subscription(
        topic="orders", expression_type="SQL92", expression="a = '<img src=x onerror=y>'"
    )
    status = await heartbeat(running, HOSTILE, consumer("billing", subscription))
    assert status.code == 0, status.remark
    for path in ("/groups/billing", "/clients"):
        page = await browser.page(path)
        assert HOSTILE in page.text
        assert not {"img", "onerror"} & {*page.tags, *page.attributes}
    for path in ("/groups/%3Cscript%3E", "/groups/a%2F..%2Fb", "/groups/%00", "/groups/x%22y"):
        status_code, text = (await browser.get(path)).error
        assert status_code == 400, text
    for path in (
        "/groups?after=%00",
        "/groups/billing?queue=-1",
        "/groups/billing?queue=9999999999",
    ):
        assert (await browser.get(path)).status == 400
    assert (await browser.get("/groups/billing?topic=missing")).status == 200


async def test_a_group_is_created_changed_and_deleted(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    page = await browser.done("/new/group", group="billing", retry_max_times="3")
    assert "The group is created." in page.text
    assert ["retryMaxTimes", "3"] in page.rows
    assert ["consumeEnable", "yes"] in page.rows
    assert (await browser.submit("/new/group", group="billing")).error[0] == 409
    assert (await browser.submit("/new/group", group="no such name")).error[0] == 400
    for wrong in ("x", "-1", "99999999999", ""):
        assert (await browser.submit("/groups/billing/edit", retry_max_times=wrong)).status == 400
    page = await browser.done("/groups/billing/edit", retry_max_times="5")
    assert ["retryMaxTimes", "5"] in page.rows
    await fill(running)
    await commit(running, "billing", "orders", 1)
    await heartbeat(running, "c-1", consumer("billing", "orders"))
    page = await browser.page("/groups/billing/delete")
    assert "its progress in orders" in page.text
    assert "The group has 1 member online" in page.text
    assert (await browser.submit("/groups/billing/delete")).error[0] == 409
    page = await browser.done("/groups/billing/delete", force="on")
    assert "The group is deleted." in page.text
    assert (await browser.get("/groups/billing")).status == 404
    for path in ("edit", "delete", "reset"):
        assert (await browser.get(f"/groups/billing/{path}")).status == 404


ACTIONS = (
    "/new/group",
    "/groups/billing/edit",
    "/groups/billing/delete",
    "/groups/billing/reset",
    "/groups/billing/dead-letters/resend",
    "/groups/billing/dead-letters/0/copy",
)


@pytest.mark.parametrize("path", ACTIONS)
async def test_an_action_needs_the_token_of_its_browser(
    running_http: RunningBroker, path: str
) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await commit(running, "billing", "orders", 1)
    await browser.page("/groups")
    assert (await browser.post(path, {})).error[0] == 403
    assert (await browser.post(path, {"token": "0" * 64})).error[0] == 403
    assert (await Browser(running).post(path, {"token": "0" * 64})).error[0] == 403
    assert (await browser.get("/groups/billing")).status == 200


async def test_a_console_that_only_reads_has_no_action(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0, console=ConsoleMode.READ_ONLY) as running:
        await fill(running)
        await commit(running, "billing", "orders", 1)
        browser = Browser(running)
        for path in ACTIONS:
            assert (await browser.get(path)).status in {400, 404}
            assert (await browser.post(path, {})).status in {404, 405}
        page = await browser.page("/groups/billing")
        assert not [target for target, _ in page.links if "/reset" in target or "/edit" in target]
        assert "Create a group" not in (await browser.page("/groups")).text


async def test_a_user_without_permission_gets_a_page_that_says_so(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        reader = Browser(running, ("reader", SECRETS["reader"]))
        admin = Browser(running, ("admin", SECRETS["admin"]))
        assert (await Browser(running).get("/groups")).status == 401
        await admin.done("/new/group", group=GROUP)
        await admin.done("/new/group", group="others")
        assert (await reader.get(f"/groups/{GROUP}")).status == 200
        assert (await reader.get("/groups/others")).error[0] == 403
        assert (await reader.submit(f"/groups/{GROUP}/delete")).error[0] == 403
        assert (await reader.submit("/new/group", group="more")).error[0] == 403
        assert (await reader.get("/clients")).error[0] == 403
        assert (await reader.get("/transactions")).error[0] == 403
        assert (await reader.get(f"/groups/{GROUP}?topic={TOPIC}")).status == 200
        assert "others" in (await admin.page("/groups")).text
        assert (await admin.get("/groups/more")).status == 404

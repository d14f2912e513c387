"""The overview: figures, the last hour, waiting messages and alerts."""

from __future__ import annotations

import pytest

from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.server.http.console.pages.broker_state.alerts import Facts, alerts
from rocketpy_broker.server.http.console.renderer import time_shown
from rocketpy_proto.rocketpy.v1 import admin_pb2, transactions_pb2
from tests.broker.http.console.topic_browser import NONE, Browser, Parsed
from tests.broker.statistics.test_history import sampled
from tests.support.blocks import wire_block
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.running_broker import RunningBroker
from tests.support.broker.transactions import prepare

NOW_MS = 1_700_000_000_000
GIB = 1 << 30


def row(page: Parsed, name: str) -> list[str]:
    """Returns the cells of the row that begins with a name."""
    [found] = [cells for cells in page.rows if cells[0] == name]
    return [cell.strip() for cell in found[1:]]


async def lagging(running: RunningBroker, group: str, topic: str, *, count: int) -> None:
    """Stores messages that a group with one member has not consumed."""
    await running.create_topic(topic, queues=1)
    await running.append(topic, 0, *[b"x"] * count)
    await heartbeat(running, f"client-{group}", consumer(group, topic))


async def test_a_new_broker_has_no_lag_and_nothing_waits(running_http: RunningBroker) -> None:
    page = await Browser(running_http).page("/")
    assert page.texts["h1"] == ["broker-a"]
    assert "The broker reads the lags at the end of each minute." in page.text
    assert row(page, "Delay levels") == ["0", NONE]
    assert row(page, "A delivery time") == ["0", NONE]
    for name in ("A retry", "You, as dead letters"):
        assert row(page, name) == [NONE, ""]
    assert "Groups with dead letters" not in page.text
    assert not page.attributes & {"style", "onclick"}


async def test_groups_are_listed_by_lag_with_their_last_hour(running_http: RunningBroker) -> None:
    await lagging(running_http, "billing", "orders", count=3)
    await lagging(running_http, "audit", "invoices", count=5)
    for group, count in (("billing", 2), ("audit", 1)):
        await running_http.create_topic(f"%DLQ%{group}", queues=1)
        await running_http.append(f"%DLQ%{group}", 0, *[b"dead"] * count)
    await sampled(running_http)
    page = await Browser(running_http).page("/")
    listed = [cells for cells in page.rows if cells[0] in {"billing", "audit"}]
    assert [[cells[0], cells[1]] for cells in listed] == [
        ["audit", "5"],
        ["billing", "3"],
        ["billing", "2"],
        ["audit", "1"],
    ]
    assert row(page, "You, as dead letters") == ["3", ""]
    assert page.tags >= {"svg", "polyline"}
    targets = {target for target, _ in page.links}
    assert targets >= {"/groups/audit", "/groups/billing", "/groups/billing/dead-letters"}


async def test_waiting_messages_have_their_next_due_time(running_http: RunningBroker) -> None:
    await running_http.create_topic("T", queues=2)
    stored_ms = running_http.clock.now_ms()
    delayed = wire_block("T", [b"late", b"late"], properties={"DELAY": ["3", "3"]})
    await running_http.append_block("T", 0, delayed)
    timed = wire_block("T", [b"timed"], properties={"TIMER_DELAY_SEC": ["60"]})
    await running_http.append_block("T", 0, timed)
    await prepare(running_http, "open")
    status = await running_http.admin.GetBrokerStatus(admin_pb2.GetBrokerStatusRequest())
    [level] = status.delay_levels
    assert (level.level, level.delay_ms, level.pending_count) == (3, 10_000, 2)
    assert level.due_timestamp_ms == stored_ms + 10_000
    assert abs(status.timer_due_timestamp_ms - stored_ms - 60_000) <= 1_000
    page = await Browser(running_http).page("/")
    assert row(page, "Delay level 3 (10 s)") == ["2", time_shown(time_of_ms(stored_ms + 10_000))]
    count, due = row(page, "A delivery time")
    assert (count, due) == ("1", time_shown(time_of_ms(status.timer_due_timestamp_ms)))
    assert row(page, "The end of a transaction") == ["1", ""]


async def test_a_group_without_members_is_an_alert_until_its_lag_falls(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("%RETRY%left<b>", queues=1)
    await running_http.create_topic("orders", queues=1)
    await running_http.append("orders", 0, b"a", b"b")
    running_http.broker.services.offsets.committed.commit("left<b>", "orders", 0, 0)
    await sampled(running_http)
    browser = Browser(running_http)
    page = await browser.page("/")
    assert "The group left<b> has no members, and 2 messages wait for it." in page.text
    assert page.link("Group") == "/groups/left%3Cb%3E"
    running_http.broker.services.offsets.committed.commit("left<b>", "orders", 0, 1)
    await sampled(running_http)
    assert "has no members" not in (await browser.page("/")).text


FINE = Facts(
    admin_pb2.GetBrokerInfoResponse(),
    admin_pb2.GetBrokerStatusResponse(disk_bytes=100 * GIB, disk_bytes_free=50 * GIB),
    admin_pb2.GetStoreStatisticsResponse(staged_bytes_max=GIB),
    admin_pb2.GetHistoryResponse(),
    transactions_pb2.ListTransactionsResponse(),
    NOW_MS,
)


def test_a_broker_without_faults_has_no_alert() -> None:
    assert alerts(FINE) == []


def changed(part: str, **fields: object) -> Facts:
    """Returns the facts of a broker without faults, with these fields of one answer changed."""
    facts = {name: getattr(FINE, name) for name in Facts.__slots__}
    answer = type(facts[part])()
    answer.CopyFrom(facts[part])
    answer.MergeFrom(type(answer)(**fields))
    return Facts(**{**facts, part: answer})


OPEN = transactions_pb2.OpenTransaction(born_timestamp_ms=NOW_MS - 3_600_000)
LATE = admin_pb2.DelayLevelStatus(level=1, due_timestamp_ms=NOW_MS - 120_000)
LEFT = admin_pb2.GroupHistory(consumer_group="g", lag=1, lags=[-1, 1, 1])


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        (changed("info", refusal="the disk is full"), "The broker refuses messages: the disk is"),
        (changed("status", disk_bytes_free=2 * GIB), "The disk is nearly full: 2.0 GiB of 100.0"),
        (changed("status", recovery_damage_count=1), "The last start found 1 damaged or doubtful"),
        (changed("status", quarantined_file_count=2), "The quarantine has 2 files."),
        (changed("status", delay_levels=[LATE]), "Delayed messages are late by 2 min."),
        (
            changed("status", timer_due_timestamp_ms=NOW_MS - 61_000),
            "Delayed messages are late by 1 min 1 s.",
        ),
        (changed("counters", staged_bytes=GIB), "Staged batches take 1.0 GiB of 1.0 GiB."),
        (changed("counters", corrupt_record_count=3), "Readers found 3 damaged records"),
        (changed("counters", flush_behind_bytes=GIB), "1.0 GiB of the log are not on disk yet."),
        (changed("counters", dispatch_behind_bytes=GIB), "1.0 GiB of the log are not in their"),
        (changed("transactions", transactions=[OPEN]), "A transaction is open for 1 h."),
        (changed("history", groups=[LEFT]), "The group g has no members, and 1 message waits"),
    ],
)
def test_each_fault_is_an_alert_with_the_next_step(facts: Facts, fault: str) -> None:
    [alert] = alerts(facts)
    assert alert.fault.startswith(fault)
    assert alert.advice.endswith(".") or alert.advice.endswith("?")
    assert alert.path in {"/store", "/transactions", "/groups/g"}

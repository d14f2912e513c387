"""Groups and clients as operators see them, through real gRPC."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rocketpy_broker.services.admin.group_list import ENTRIES_A_SLOT, REGISTRATIONS_PER_PAGE
from rocketpy_broker.services.admin.pages import PAGE_COUNT_MAX
from rocketpy_proto.call_limits import WORK_MS_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.broker.admin.test_administration import commit
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.event_loop import counted_slots
from tests.support.broker.running_broker import RunningBroker


async def groups(running: RunningBroker, **fields: Any) -> groups_pb2.ListGroupsResponse:
    response: groups_pb2.ListGroupsResponse = await running.groups.ListGroups(
        groups_pb2.ListGroupsRequest(**fields)
    )
    return response


async def topics_of(running: RunningBroker, group: str, **fields: Any) -> Any:
    request = groups_pb2.ListGroupTopicsRequest(consumer_group=group, **fields)
    return await running.groups.ListGroupTopics(request)


def names(response: groups_pb2.ListGroupsResponse) -> list[str]:
    assert response.status.code == 0, response.status.remark
    return [each.consumer_group for each in response.groups]


async def test_groups_are_listed_with_members_topics_and_lag(running: RunningBroker) -> None:
    for topic in ("T", "U"):
        await running.create_topic(topic, queues=2)
        await running.append(topic, 0, b"1", b"2", b"3")
        await running.append(topic, 1, b"1")
    await commit(running, "idle", ("T", 0, 2))
    await heartbeat(running, "c1", consumer("busy", "U"))
    await heartbeat(running, "c2", consumer("busy", "U"))
    busy, idle = (await groups(running)).groups
    assert (busy.consumer_group, busy.member_count, list(busy.topics)) == ("busy", 2, ["U"])
    assert busy.consume_type == groups_pb2.CONSUME_PASSIVELY
    assert (busy.message_model, busy.lag) == (groups_pb2.CLUSTERING, 4)
    assert (idle.consumer_group, idle.member_count, list(idle.topics)) == ("idle", 0, ["T"])
    assert (idle.consume_type, idle.lag, idle.is_configured) == (0, 2, True)


async def test_a_group_s_topics_are_those_of_its_progress_and_of_its_subscriptions(
    running: RunningBroker,
) -> None:
    for topic in ("A", "B"):
        await running.create_topic(topic, queues=2)
        await running.append(topic, 0, b"1", b"2")
    await commit(running, "g", ("A", 0, 1), ("A", 1, 0))
    await heartbeat(running, "c1", consumer("g", "B", "gone"))
    first, second = (await topics_of(running, "g")).topics
    assert (first.topic, first.is_subscribed, first.lag) == ("A", False, 1)
    assert (first.queue_count, first.committed_queue_count) == (2, 2)
    assert (second.topic, second.is_subscribed, second.lag) == ("B", True, 2)
    assert (second.queue_count, second.committed_queue_count) == (2, 0)


async def test_the_broker_s_own_groups_are_listed_only_if_asked_for(running: RunningBroker) -> None:
    assert names(await groups(running)) == []
    own = names(await groups(running, include_system=True))
    assert {"CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"} <= set(own)


async def test_groups_come_in_pages(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    for number in range(25):
        await commit(running, f"g{number:02}", ("T", 0, 0))
    seen: list[str] = []
    page = await groups(running, count_max=10)
    sizes = [len(page.groups)]
    seen += names(page)
    while page.has_more:
        page = await groups(running, count_max=10, after=seen[-1])
        sizes.append(len(page.groups))
        seen += names(page)
    assert (seen, sizes) == ([f"g{number:02}" for number in range(25)], [10, 10, 5])


async def test_a_call_that_has_worked_long_answers_what_it_has(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("A", "B"):
        await running.create_topic(topic, queues=1)
    for group in ("g", "h"):
        await commit(running, group, ("A", 0, 0), ("B", 0, 0))
    # The whole work time passes between two looks at the clock.
    times = count(step=WORK_MS_MAX)
    monkeypatch.setattr(running.clock, "monotonic_ms", lambda: next(times))
    page = await groups(running)
    assert (names(page), page.has_more) == (["g"], True)
    page = await groups(running, after="g")
    assert (names(page), page.has_more) == (["h"], False)
    topics = await topics_of(running, "g")
    assert ([each.topic for each in topics.topics], topics.has_more) == (["A"], True)
    topics = await topics_of(running, "g", after="A")
    assert ([each.topic for each in topics.topics], topics.has_more) == (["B"], False)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count_max": -1}, "count_max is -1"),
        ({"count_max": -(1 << 31)}, "count_max is -2147483648"),
        ({"after": "g" * 256}, "1 to 255"),
        ({"after": "a\x00b"}, "printable"),
    ],
)
async def test_a_bad_page_is_refused(
    fields: dict[str, Any], said: str, running: RunningBroker
) -> None:
    status = (await groups(running, **fields)).status
    assert (status.code, said in status.remark) == (ResponseCode.INVALID_PARAMETER, True)
    if "count_max" in fields:
        await commit(running, "g")
        status = (await topics_of(running, "TOOLS_CONSUMER", **fields)).status
        assert (status.code, said in status.remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_a_huge_page_is_cut_to_the_limit(
    running: RunningBroker,
) -> None:
    for part in range(PAGE_COUNT_MAX // 100 + 1):
        consumers = [consumer(f"g{100 * part + number}") for number in range(100)]
        assert (await heartbeat(running, f"c{part}", *consumers)).code == 0
    page = await groups(running, count_max=(1 << 31) - 1)
    assert (len(page.groups), page.has_more) == (PAGE_COUNT_MAX, True)


async def test_a_group_is_told_with_its_settings_retries_and_dead_letters(
    running: RunningBroker,
) -> None:
    await heartbeat(running, "c1", consumer("g", "T"))
    await running.append("%RETRY%g", 0, b"1", b"2", b"3")
    await running.create_topic("%DLQ%g", queues=1)
    await running.append("%DLQ%g", 0, b"dead")
    await commit(running, "g", ("%RETRY%g", 0, 1))
    found = await running.groups.GetGroup(groups_pb2.GetGroupRequest(consumer_group="g"))
    assert (found.status.code, found.member_count) == (0, 1)
    assert (found.retry_message_count, found.dead_letter_count) == (2, 1)
    assert (found.config.retry_max_times, found.config.consume_enable) == (16, True)


@pytest.mark.parametrize("method", ["GetGroup", "ListGroupTopics", "DeleteGroup"])
@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("none", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("", ResponseCode.INVALID_PARAMETER),
        ("a b", ResponseCode.INVALID_PARAMETER),
        ("g" * 300, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_a_group_that_there_is_not_is_refused(
    method: str, group: str, code: int, running: RunningBroker
) -> None:
    request = getattr(groups_pb2, f"{method}Request")(consumer_group=group)
    assert (await getattr(running.groups, method)(request)).status.code == code


async def test_clients_are_listed_with_their_groups_in_pages(running: RunningBroker) -> None:
    await heartbeat(running, "c2", consumer("h"), consumer("g"), producers=["p"])
    await heartbeat(running, "c1", consumer("g"))
    request = groups_pb2.ListClientsRequest(count_max=1)
    page = await running.groups.ListClients(request)
    assert ([each.client_id for each in page.clients], page.has_more) == (["c1"], True)
    page = await running.groups.ListClients(groups_pb2.ListClientsRequest(after="c1"))
    [client] = page.clients
    assert ([(each.group, each.is_producer) for each in client.registrations]) == [
        ("g", False),
        ("h", False),
        ("p", True),
    ]
    assert client.registrations[0].last_update_ms == running.clock.now_ms()
    assert not page.has_more


async def test_a_page_of_clients_ends_when_it_has_many_registrations(
    running: RunningBroker,
) -> None:
    consumers = [consumer(f"g{number}") for number in range(REGISTRATIONS_PER_PAGE // 2 + 1)]
    for client_id in ("c1", "c2", "c3"):
        for begin in range(0, len(consumers), 100):
            assert (await heartbeat(running, client_id, *consumers[begin : begin + 100])).code == 0
    page = await running.groups.ListClients(groups_pb2.ListClientsRequest())
    assert ([each.client_id for each in page.clients], page.has_more) == (["c1", "c2"], True)
    sizes = [len(each.registrations) for each in page.clients]
    assert sizes == [len(consumers)] * 2


@pytest.mark.parametrize(("groups_count", "queues"), [(1, 4_000), (100, 40)])
async def test_b09_lags_of_many_queues_leave_turns_to_others(
    running: RunningBroker, groups_count: int, queues: int
) -> None:
    """Covers one group with many queues, and many groups with a few queues each."""
    await running.create_topic("T", queues=queues)
    for number in range(groups_count):
        await commit(running, f"g{number}", ("T", 0, 0))
    async with counted_slots() as slots:
        page = await groups(running)
    assert len(page.groups) == groups_count
    assert len(slots) >= groups_count * queues // ENTRIES_A_SLOT - 1

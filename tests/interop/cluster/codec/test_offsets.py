"""Offsets by time and offsets of groups, queried from masters of both versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.remoting import MessageQueue, RequestCode, ResponseCode
from rocketpy_proto.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy_proto.remoting.headers.clients import ConsumeStatsRequest
from rocketpy_proto.remoting.headers.offsets import LOWER, UPPER
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.interop.cluster.cluster import Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.java_clients import mqadmin
from tests.interop.cluster.messages import (
    Outgoing,
    Queue,
    commit,
    committed,
    max_offset,
    min_offset,
    offset_by_time,
    put,
    read_all,
)
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import V4

CLOCK = SystemClock()
GAP_MS = 40


def store_times(connection: Connection, queue: Queue, count: int) -> list[int]:
    """Sends messages that are stored at least GAP_MS apart; returns their times."""
    for _ in range(count):
        put(connection, queue, Outgoing(b"timed"))
        sent_ms = CLOCK.now_ms()
        until(partial(_is_later, sent_ms), "later", [])
    return [record.store_timestamp_ms for record in read_all(connection, queue)]


def _is_later(sent_ms: int) -> bool:
    return CLOCK.now_ms() > sent_ms + GAP_MS


def create_group(connection: Connection, name: str) -> None:
    group = SubscriptionGroupConfig(name)
    connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).ok()


def test_a_time_between_two_messages_is_the_later_ones_or_the_nearest(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    times = store_times(connection, queue, 4)

    def found(store_ms: int, boundary_type: str | None = None) -> int:
        return offset_by_time(connection, queue, store_ms, boundary_type)

    assert [found(store_ms) for store_ms in times] == [0, 1, 2, 3]
    just_after = times[1] + 1
    if master.spec.version != V4:
        assert found(just_after) == found(just_after, LOWER) == 2
        assert found(just_after, UPPER) == 1
        assert found(times[3] + 1) == 4
        assert found(times[3] + 1, UPPER) == 3
    else:
        assert found(just_after, LOWER) == found(just_after, UPPER) == 1
        assert found(times[2] - 1) == 2
        assert found(times[3] + 1) == 3
    assert found(0) == 0


def test_a_queue_that_is_not_there_is_at_zero(connection: Connection) -> None:
    nowhere = Queue("nowhere", 5)
    assert min_offset(connection, nowhere) == max_offset(connection, nowhere) == 0
    assert offset_by_time(connection, nowhere, CLOCK.now_ms()) == 0


def test_what_a_group_commits_is_what_it_is_told(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    group = f"group-{queue.topic}"
    create_group(connection, group)
    put(connection, queue, Outgoing(b"one"))
    before = committed(connection, group, queue)
    # 4.9 cannot report that nothing is committed.
    is_new = master.spec.version != V4
    assert before.code == (ResponseCode.QUERY_NOT_FOUND if is_new else ResponseCode.SUCCESS)
    for offset in (1, 0, 4000):
        commit(connection, group, queue, offset).ok()
        assert committed(connection, group, queue).ok().header.offset == offset
    offsets = connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).ok().content.offset_table
    assert offsets[f"{queue.topic}@{group}"] == {0: 4000}


def test_only_4_9_takes_offsets_of_groups_that_it_does_not_know(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    answer = commit(connection, f"unknown-{queue.topic}", queue, 1)
    is_new = master.spec.version != V4
    expected = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST if is_new else ResponseCode.SUCCESS
    assert answer.code == expected


def test_statistics_name_their_queues_by_objects(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    group = f"group-{queue.topic}"
    create_group(connection, group)
    for _ in range(3):
        put(connection, queue, Outgoing(b"counted"))
    commit(connection, group, queue, 1).ok()
    key = MessageQueue(master.spec.name, 0, queue.topic)
    header = TopicRequest(topic=queue.topic)
    topic = connection.ask(RequestCode.GET_TOPIC_STATS_INFO, header).ok().content
    assert (topic.offset_table[key].min_offset, topic.offset_table[key].max_offset) == (0, 3)
    stats_header = ConsumeStatsRequest(consumer_group=group, topic=queue.topic)
    stats = connection.ask(RequestCode.GET_CONSUME_STATS, stats_header).ok().content
    wrapper = stats.offset_table[key]
    assert (wrapper.broker_offset, wrapper.consumer_offset) == (3, 1)


def test_rocketmqs_own_tool_shows_how_far_behind_our_group_is(
    connection: Connection, queue: Queue, master: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    group = f"group-{queue.topic}"
    data = ConsumerData(group, subscriptions=(SubscriptionData(queue.topic),))
    with Connection(master.address) as member:
        # Creates the group, and its retry topic: the tool finds the group by that topic's route.
        member.ask(RequestCode.HEART_BEAT, body=HeartbeatData(group, consumers=(data,))).ok()
    for _ in range(5):
        put(connection, queue, Outgoing(b"unread"))
    commit(connection, group, queue, 2).ok()
    retries = f"%RETRY%{group}"
    until(
        lambda: all(server.routes(retries) for server in cluster.name_servers),
        "routed to retries",
        [master],
    )
    # The tool of 5 sends requests that 4.9 does not know, and gives up.
    where = ("-n", cluster.addresses, "-g", group)
    shown = mqadmin(master.spec.version, tmp_path, "consumerProgress", *where)
    rows = [line.split() for line in shown.splitlines() if line.startswith(queue.topic[:20])]
    assert rows, shown
    (row,) = [row for row in rows if row[2] == "0"]
    assert row[1] == master.spec.name
    assert row[3:5] == ["5", "2"], shown
    assert "3" in row[5:], shown

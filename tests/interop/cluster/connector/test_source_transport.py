"""The source's transport at a live cluster: bounds, ranges, filters and lost servers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError, OptionError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, QueueRange
from pyspark_rocketpy.transport.remoting.cluster.client import cluster_for
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import consumer_offset
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, send
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from pyspark_rocketpy.transport.values import PullOptions, QueueTime, RetryPolicy, Subscription
from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage, MessageQueue, ResponseCode, encode_batch
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Queue, max_offset, pull
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import SLAVE_ID
from tests.support.blocks import bodies_of
from tests.support.time_limits import WAIT_SECONDS_MAX

PATIENT = Timeouts(WAIT_SECONDS_MAX * 1000, "connectTimeout")
TOPIC, GROUP = "source-transport", "source-readers"
QUEUES = 2
NAMES = (A, B, OLD)
# Messages of each broker's first queue, and the number of messages in one send.
COUNT, BATCH = 20_000, 500
OPTIONS = PullOptions(GROUP, 1 << 20, fail_on_data_loss=True)
SUBSCRIPTION = Subscription((TOPIC,), None, GROUP)
RETRIES = RetryPolicy(10, 100)


@pytest.fixture
def source(cluster: Cluster) -> RemotingSource:
    """Returns a source that knows all masters, also one that the test before had killed."""
    config = ClusterConfig(tuple(cluster.addresses.split(";")), PATIENT, PATIENT)
    made = RemotingSource(config, RETRIES, GROUP, 30_000, 64, 32 << 20, WAIT_SECONDS_MAX * 1000)

    def is_known() -> bool:
        cluster_for(config)._routes.doubt(TOPIC)
        return is_whole(made.offset_queries().bounds(SUBSCRIPTION))

    until(is_known, "masters", [])
    return made


@pytest.fixture(scope="module", autouse=True)
def _filled(cluster: Cluster) -> None:
    """Fills every broker's first queue with messages that have their offsets as bodies."""
    cluster.create_topic(TOPIC, QUEUES)
    seen = cluster_for(ClusterConfig(tuple(cluster.addresses.split(";")), PATIENT, PATIENT))
    for name in NAMES:
        queue = MessageQueue(name, 0, TOPIC)
        for begin in range(0, COUNT, BATCH):
            sent = send(seen, queue, SendBatch(encode_batch(messages(begin)), BATCH), PATIENT)
            assert sent.answer().queue_offset == begin


def messages(begin: int) -> list[BatchMessage]:
    return [
        BatchMessage(b"%d" % n, encode_properties({"TAGS": tag(n), "number": str(n)}))
        for n in range(begin, begin + BATCH)
    ]


def tag(number: int) -> str:
    return "hundredth" if number % 100 == 0 else "other"


def whole(name: str) -> QueueRange:
    return QueueRange(TOPIC, 0, 0, COUNT, broker_name=name)


def pulled(
    source: RemotingSource, part: QueueRange, options: PullOptions = OPTIONS
) -> Iterator[int]:
    """Yields the bodies of a range, piece by piece."""
    reached = part.begin
    for piece in source.pull(part, options):
        assert reached <= piece.begin
        reached = piece.end
        yield from map(int, bodies_of(bytes(piece.records), piece.sizes))


def is_whole(bounds: Bounds) -> bool:
    """True if each broker's master has answered, also one that another test had killed."""
    queues = bounds[TOPIC]
    return {queue.broker_name for queue in queues} == {*NAMES} and not any(
        each.is_lagging for each in queues.values()
    )


def until_seen(source: RemotingSource, names: tuple[str, ...]) -> Bounds:
    """Returns the bounds, once they include all messages of these brokers."""
    queries = source.offset_queries()
    found: list[Bounds] = []

    def is_seen() -> bool:
        found.append(queries.bounds(SUBSCRIPTION))
        ends = {
            queue.broker_name: each.max_offset
            for queue, each in found[-1][TOPIC].items()
            if queue.queue_id == 0
        }
        return ends == dict.fromkeys(names, COUNT)

    until(is_seen, f"seen: {names}", [])
    return found[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_is_read_whole_and_in_parts(source: RemotingSource, name: str) -> None:
    until_seen(source, NAMES)
    assert [*pulled(source, whole(name))] == [*range(COUNT)]
    part = replace(whole(name), begin=777, end=5_555)
    assert [*pulled(source, part)] == [*range(777, 5_555)]


@pytest.mark.parametrize("name", NAMES)
def test_filters_leave_out_at_the_broker(source: RemotingSource, name: str) -> None:
    until_seen(source, NAMES)
    wanted = [*range(0, COUNT, 100)]
    by_tag = replace(OPTIONS, tags_codes=(1,), tags=("hundredth", "unknown"))
    assert [*pulled(source, whole(name), by_tag)] == wanted
    by_sql = replace(OPTIONS, expression="TAGS = 'hundredth' AND number < 9000")
    assert [*pulled(source, whole(name), by_sql)] == wanted[:90]


def test_bounds_are_of_every_queue_of_every_broker(source: RemotingSource) -> None:
    bounds = until_seen(source, NAMES)
    assert {*bounds[TOPIC]} == {BrokerQueue(name, n) for name in NAMES for n in range(QUEUES)}
    assert not any(each.is_lagging for each in bounds[TOPIC].values())
    queries = source.offset_queries()
    assert queries.bounds(Subscription(("nowhere",), None, GROUP)) == {}
    of_pattern = queries.bounds(Subscription((), "source-.*|TBW.*|Loop.*|broker.*|%.*", GROUP))
    assert {*of_pattern} == {TOPIC}


def test_a_wait_ends_with_a_message(source: RemotingSource) -> None:
    queries = source.offset_queries()
    known = until_seen(source, NAMES)
    assert queries.bounds(SUBSCRIPTION, known, 100) == known
    seen = cluster_for(source.cluster)
    for name in NAMES:
        queue = MessageQueue(name, 1, TOPIC)
        sender = threading.Timer(
            0.2, lambda at=queue: send(seen, at, SendBatch(b"0", 1, ""), PATIENT)
        )
        sender.start()
        found = queries.bounds(SUBSCRIPTION, known, WAIT_SECONDS_MAX * 1000)
        sender.join()
        key = BrokerQueue(name, 1)
        assert found[TOPIC][key].max_offset == known[TOPIC][key].max_offset + 1
        known = found


@pytest.mark.parametrize("name", NAMES)
def test_times_are_found_exactly(source: RemotingSource, name: str) -> None:
    until_seen(source, NAMES)
    times = [
        int.from_bytes(record[56:64], "big")
        for piece in source.pull(whole(name), OPTIONS)
        for record in split(piece.records, piece.sizes.tolist())
    ]
    asked = [times[0], times[700] + 1, times[COUNT // 2], times[-1], times[-1] + 1, 0]
    found = source.offset_queries().search([QueueTime(TOPIC, 0, at, name) for at in asked])
    wanted = [next((n for n in range(COUNT) if times[n] >= at), None) for at in asked]
    assert found == wanted


def split(records: memoryview, sizes: list[int]) -> Iterator[memoryview]:
    place = 0
    for size in sizes:
        yield records[place : place + size]
        place += size


def test_bytes_are_limited_by_estimate(source: RemotingSource) -> None:
    until_seen(source, NAMES)
    ranges = [whole(name) for name in NAMES]
    size = sum(len(piece.records) for piece in source.pull(ranges[0], OPTIONS))
    queries = source.offset_queries()
    assert queries.limit_bytes(ranges, 4 * size) == [COUNT] * 3
    halves = queries.limit_bytes(ranges, 3 * size // 2)
    assert all(0.4 * COUNT < end < 0.6 * COUNT for end in halves)
    assert Counter(queries.limit_bytes(ranges, 1)) == {1: 1, 0: 2}


def test_progress_is_kept_by_each_master(source: RemotingSource, cluster: Cluster) -> None:
    queries = source.offset_queries()
    group = "source-progress"
    positions = {TOPIC: {BrokerQueue(name, 0): 1_000 for name in NAMES}}
    queries.commit(group, positions, {})
    seen = cluster_for(source.cluster)
    for name in NAMES:
        queue = MessageQueue(name, 0, TOPIC)
        assert consumer_offset(seen, group, queue).answer() == 1_000
    retries = f"%RETRY%{group}"
    until(
        lambda: all({*each.routes(retries)} == {*NAMES} for each in cluster.name_servers),
        "a retry topic",
        [],
    )
    as_group = Subscription((TOPIC,), None, group, wants_committed=True)
    found = source.offset_queries().bounds(as_group)[TOPIC]
    assert {found[BrokerQueue(name, 0)].committed_offset for name in NAMES} == {1_000}
    assert found[BrokerQueue(A, 1)].committed_offset == -1


def test_expressions_are_checked_by_brokers(source: RemotingSource) -> None:
    queries = source.offset_queries()
    assert queries.expression_fault("number > 1 AND TAGS IS NOT NULL") is None
    assert "Encountered" in (queries.expression_fault("number >> 1") or "")


def test_brokers_that_filter_nothing_are_told_of(source: RemotingSource, cluster: Cluster) -> None:
    with ExitStack() as without:
        for broker in cluster.masters:
            without.enter_context(broker.switched("enablePropertyFilter", to=False))
        with pytest.raises(OptionError, match="enablePropertyFilter=true"):
            source.offset_queries().expression_fault("number > 1")


def test_a_broker_that_is_killed_is_gone_on_with(
    source: RemotingSource, fragile_cluster: Cluster
) -> None:
    until_seen(source, NAMES)
    # A server process dies with the thread that starts it, so another thread pulls.
    found: list[int] = []
    is_there, is_killed = threading.Event(), threading.Event()

    def pull() -> None:
        part, small = whole(B), replace(OPTIONS, fetch_bytes_max=1)
        for number in pulled(replace(source, pulls_in_flight_max=2), part, small):
            found.append(number)
            if number == COUNT // 4:
                is_there.set()
                is_killed.wait(WAIT_SECONDS_MAX)

    puller = threading.Thread(target=pull)
    puller.start()
    assert is_there.wait(WAIT_SECONDS_MAX)
    fragile_cluster.broker(B).kill()
    is_killed.set()
    bounds = source.offset_queries().bounds(SUBSCRIPTION)
    assert {queue.broker_name for queue in bounds[TOPIC]} == {A, OLD}
    fragile_cluster.heal()
    puller.join(WAIT_SECONDS_MAX)
    assert found == [*range(COUNT)]
    until_seen(source, NAMES)


def test_an_absent_broker_is_given_up_in_time(
    source: RemotingSource, fragile_cluster: Cluster
) -> None:
    until_seen(source, NAMES)
    fragile_cluster.broker(B).kill()
    with pytest.raises(ConnectionFailedError, match="limit 1000 ms"):
        next(pulled(replace(source, broker_unavailable_timeout_ms=1_000), whole(B)))


def test_a_frozen_name_server_is_passed_by(
    source: RemotingSource, fragile_cluster: Cluster
) -> None:
    impatient = Timeouts(3_000, "connectTimeout")
    config = replace(source.cluster, connect=impatient, request=impatient)
    hurried = replace(source, cluster=config)
    fragile_cluster.name_servers[0].freeze()
    until_seen(hurried, NAMES)
    assert [*pulled(hurried, replace(whole(A), end=1_000))] == [*range(1_000)]


def test_a_frozen_broker_is_left_out_of_bounds(
    source: RemotingSource, fragile_cluster: Cluster
) -> None:
    impatient = Timeouts(4_000, "connectTimeout")
    config = replace(source.cluster, connect=impatient, request=impatient)
    queries = replace(source, cluster=config).offset_queries()

    def seen() -> set[str]:
        # A busy machine may take four seconds for the answer of a broker that runs, too.
        return {queue.broker_name for queue in queries.bounds(SUBSCRIPTION)[TOPIC]}

    until(lambda: seen() == {*NAMES}, "all there", [])
    fragile_cluster.broker(B).freeze()
    for _ in range(3):
        assert B not in seen()
    until(lambda: seen() == {A, OLD}, "others there", [])
    fragile_cluster.broker(B).thaw()
    until(lambda: seen() == {*NAMES}, "back", [])


@pytest.fixture
def _readable_slave(fragile_cluster: Cluster) -> Iterator[None]:
    """Gives the slave the topic, and permits reads from it."""
    slave = fragile_cluster.broker(A, SLAVE_ID)
    with slave.switched("slaveReadEnable", to=True):
        with Connection(slave.address) as connection:
            # It asks its master for topics every 10 s.
            queue = Queue(TOPIC)
            until(lambda: pull(connection, queue).code == ResponseCode.SUCCESS, "there", [slave])
            until(lambda: max_offset(connection, queue) == COUNT, "copied", [slave])
        yield


@pytest.mark.usefixtures("_readable_slave")
def test_a_slave_is_read_while_its_master_is_away(
    source: RemotingSource, fragile_cluster: Cluster
) -> None:
    until_seen(source, NAMES)
    fragile_cluster.broker(A).kill()
    servers = fragile_cluster.name_servers
    until(
        lambda: all(each.routes(TOPIC)[A].keys() == {SLAVE_ID} for each in servers),
        "without its master",
        [],
    )
    cluster_for(source.cluster)._routes.doubt(TOPIC)
    bounds = until_seen(source, NAMES)
    assert bounds[TOPIC][BrokerQueue(A, 0)].is_lagging
    assert not bounds[TOPIC][BrokerQueue(B, 0)].is_lagging
    assert [*pulled(source, whole(A))] == [*range(COUNT)]

"""Tasks' messages at live brokers of both versions, as RocketMQ's own code reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_rocketpy.errors import BrokerError, ColumnError, TopicNotExistError
from pyspark_rocketpy.sink.task_writer import LOT_BYTES, WriteConfig, write_batches
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.sink import RemotingTransport
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import BatchName
from rocketpy_proto.model.unique_keys import row_keys
from rocketpy_proto.record import Record
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.java_clients import ConnectJava, JavaQueue, mqadmin
from tests.interop.cluster.messages import Queue, max_offset, read_all
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import ENDS, V4
from tests.support.time_limits import WAIT_SECONDS_MAX

PATIENT = Timeouts(WAIT_SECONDS_MAX * 1000, "connectTimeout")
NAME, PARTITION = BatchName("query", 3), 2
QUEUES = 2
CONTROL = "rocketpy_control"
Write = Callable[..., int]


@pytest.fixture
def transport(cluster: Cluster) -> Iterator[RemotingTransport]:
    """Yields the sink's transport to the cluster."""
    config = ClusterConfig(tuple(cluster.addresses.split(";")), PATIENT, PATIENT)
    yield RemotingTransport(config, RetryPolicy(60, 100))
    SHARED.close()


@pytest.fixture
def write_once(transport: RemotingTransport, cluster: Cluster) -> Write:
    """Returns the same, effectively once; the control topic is at broker-a, which no test kills."""
    cluster.create_topic(CONTROL, 1, [cluster.broker(A)])
    once = replace(transport, control_topic=CONTROL)

    def written(topic: str, batches: Iterable[pa.RecordBatch]) -> int:
        names = ("body", "messageGroup")
        config = WriteConfig(once, topic, names, BLOCK_BYTES, 7, has_keys_of_rows=True)
        done = write_batches(config, iter(batches), BatchName(topic, 3), PARTITION)
        return once.commit_batch([done.part], 3).record_count

    return written


@pytest.fixture
def write(transport: RemotingTransport) -> Write:
    """Returns a function that writes Arrow batches as a task does, and returns the rows' number."""

    def written(
        topic: str, batches: Iterable[pa.RecordBatch], block_bytes_max: int = 2 << 20
    ) -> int:
        kept = iter(batches)
        first = next(kept)
        names = tuple(first.schema.names)
        config = WriteConfig(transport, topic, names, block_bytes_max, has_keys_of_rows=True)

        def all_of_them() -> Iterator[pa.RecordBatch]:
            yield first
            yield from kept

        return write_batches(config, all_of_them(), NAME, PARTITION).rows

    return written


def stored(broker: Broker, topic: str, count: int) -> dict[int, list[Record]]:
    """Returns the records of each queue, once all queues together have `count`."""
    queues = [Queue(topic, queue_id) for queue_id in range(QUEUES)]
    with Connection(broker.address) as connection:
        until(
            lambda: sum(max_offset(connection, queue) for queue in queues) >= count,
            f"{count} messages of {topic}",
            [broker],
        )
        return {queue.queue_id: read_all(connection, queue) for queue in queues}


ROWS = pa.record_batch(
    {
        "body": pa.array([b"one", "Köln".encode(), b"three"], pa.binary()),
        "tags": pa.array(["blue", "red", None]),
        "keys": pa.array([["k1", "k2"], [], None], pa.list_(pa.string())),
        "properties": pa.array(
            [[("stadt", "Köln 😀")], [], None], pa.map_(pa.string(), pa.string())
        ),
        "queueId": pa.array([0, 0, 0], pa.int32()),
    }
)


@pytest.mark.parametrize("version", ENDS)
def test_the_java_client_reads_rows_as_they_were_written(
    write: Write, connect_java: ConnectJava, topic: str, master: Broker, version: str
) -> None:
    assert write(topic, [ROWS]) == len(ROWS)
    stored(master, topic, len(ROWS))
    first, second, third = connect_java(version, topic).pull(JavaQueue(master.spec.name, 0))
    keys = row_keys((NAME.writer_id, NAME.batch_id, PARTITION), pa.array([0, 1, 2]).to_numpy())
    assert [one["msgId"] for one in (first, second, third)] == keys.to_pylist()
    assert [one["body"] for one in (first, second, third)] == ROWS.column("body").to_pylist()
    assert (first["tags"], first["keys"]) == ("blue", "k1 k2")
    assert first["properties"]["stadt"] == "Köln 😀"
    assert second["tags"] == "red"
    assert not {"TAGS", "KEYS", "stadt"} & third["properties"].keys()


def test_a_row_is_found_by_its_unique_key(
    write: Write, topic: str, master: Broker, tmp_path: Path, cluster: Cluster
) -> None:
    write(topic, [ROWS])
    stored(master, topic, len(ROWS))
    [key] = row_keys((NAME.writer_id, NAME.batch_id, PARTITION), pa.array([1]).to_numpy())
    where = ("-n", cluster.addresses, "-t", topic, "-i", key.as_py())

    def is_found() -> bool:
        shown = mqadmin(master.spec.version, tmp_path, "queryMsgByUniqueKey", *where)
        return f"Topic:               {topic}" in shown and "UNIQ_KEY=" + key.as_py() in shown

    # A broker adds a message to its index after it has added it to its queue.
    until(is_found, "found", [master])


def test_rows_go_to_the_queue_of_the_broker_that_they_name(write: Write, cluster: Cluster) -> None:
    names = [A, B, OLD]
    cluster.create_topic("named-queues", QUEUES)
    places = [(name, queue_id) for name in names for queue_id in range(QUEUES)]
    rows = pa.record_batch(
        {
            "body": pa.array([f"{name} {queue_id}".encode() for name, queue_id in places]),
            "brokerName": pa.array([name for name, _ in places]),
            "queueId": pa.array([queue_id for _, queue_id in places], pa.int32()),
        }
    )
    assert write("named-queues", [rows]) == len(places)
    for name in names:
        found = stored(cluster.broker(name), "named-queues", QUEUES)
        assert {number: [r.body for r in records] for number, records in found.items()} == {
            number: [f"{name} {number}".encode()] for number in range(QUEUES)
        }
    with pytest.raises(ColumnError, match="its topic has queues at several brokers"):
        write("named-queues", [rows.select(["body", "queueId"])])
    with pytest.raises(TopicNotExistError):
        write("nowhere", [rows])


def test_a_level_is_waited_for(write: Write, topic: str, master: Broker) -> None:
    rows = pa.record_batch(
        {"body": pa.array([b"late", b"now"]), "delayLevel": pa.array([1, 0], pa.int32())}
    )
    write(topic, [rows])
    records = [one for found in stored(master, topic, 2).values() for one in found]
    times = {one.body: one.store_timestamp_ms - one.born_timestamp_ms for one in records}
    assert times[b"late"] >= 1_000


def test_a_time_is_waited_for_at_5_and_refused_for_4(
    write: Write, topic: str, master: Broker
) -> None:
    at = datetime.now(timezone.utc) + timedelta(seconds=3)
    times = pa.array([at], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"body": pa.array([b"late"]), "deliverAt": times})
    if master.spec.version == V4:
        with pytest.raises(BrokerError, match="older than RocketMQ 5"):
            write(topic, [rows])
        return
    write(topic, [rows])
    [record] = [one for found in stored(master, topic, 1).values() for one in found]
    assert record.store_timestamp_ms >= int(at.timestamp() * 1_000) - 1_000


def test_the_largest_row_and_the_fullest_batches_are_taken(
    write: Write, topic: str, master: Broker
) -> None:
    small = [b"%d" % number for number in range(25_000)]
    bodies = [*small, b"x" * (4 << 20), *small]
    assert write(topic, [pa.record_batch({"body": pa.array(bodies, pa.binary())})]) == len(bodies)
    found = stored(master, topic, len(bodies))
    assert sorted(one.body for records in found.values() for one in records) == sorted(bodies)


# Blocks small enough for each lot to reach every queue.
LOTS, LOT_ROWS, BODY_BYTES, BLOCK_BYTES = 6, 3_100, 1_024, 256 << 10
assert LOT_ROWS * BODY_BYTES > LOT_BYTES


def lots(at_half: Callable[[], None], **columns: pa.Array) -> Iterator[pa.RecordBatch]:
    """Yields numbered rows, in batches that a task sends as they come."""
    for lot in range(LOTS):
        if lot == LOTS // 2:
            at_half()
        numbers = range(lot * LOT_ROWS, (lot + 1) * LOT_ROWS)
        bodies = [b"%07d" % number + b"." * (BODY_BYTES - 7) for number in numbers]
        yield pa.record_batch({"body": pa.array(bodies, pa.binary()), **columns})


def numbers_of(found: dict[int, list[Record]]) -> set[int]:
    return {int(one.body[:7]) for records in found.values() for one in records}


ALL = set(range(LOTS * LOT_ROWS))


def test_s03_rows_go_on_to_other_brokers_when_one_is_killed(
    write: Write, fragile_cluster: Cluster
) -> None:
    brokers = [fragile_cluster.broker(name) for name in (A, B)]
    fragile_cluster.create_topic("killed-in-mid-write", QUEUES, brokers)

    def kill() -> None:
        # A busy broker may have stored nothing yet, and then all rows go to the other one.
        stored(brokers[1], "killed-in-mid-write", 1)
        brokers[1].kill()

    assert write("killed-in-mid-write", lots(kill), BLOCK_BYTES) == len(ALL)
    fragile_cluster.heal()

    def found() -> list[set[int]]:
        return [numbers_of(stored(broker, "killed-in-mid-write", 1)) for broker in brokers]

    until(lambda: set.union(*found()) == ALL, "all stored", brokers)
    assert found()[1]


def test_s03_rows_of_a_queue_wait_for_their_broker_and_keep_their_order(
    write: Write, fragile_cluster: Cluster
) -> None:
    broker = fragile_cluster.broker(B)
    fragile_cluster.create_topic("waited-for", QUEUES, [broker])
    due, killed = threading.Event(), threading.Event()

    def wait_for_the_kill() -> None:
        due.set()
        assert killed.wait(WAIT_SECONDS_MAX)

    groups = pa.array([f"g{number % 5}" for number in range(LOT_ROWS)])
    with ThreadPoolExecutor(1) as pool:
        rows = lots(wait_for_the_kill, messageGroup=groups)
        writing = pool.submit(write, "waited-for", rows, BLOCK_BYTES)
        # The main thread restarts the broker: a process dies with the thread that starts it.
        assert due.wait(WAIT_SECONDS_MAX)
        broker.kill()
        killed.set()
        fragile_cluster.heal()
        assert writing.result(WAIT_SECONDS_MAX) == len(ALL)
    # A batch may be there twice.
    until(lambda: numbers_of(stored(broker, "waited-for", len(ALL))) == ALL, "stored", [broker])
    found = stored(broker, "waited-for", len(ALL))
    for records in found.values():
        # First occurrences only: a batch with a lost answer is sent again as a whole.
        firsts = list(dict.fromkeys(int(one.body[:7]) for one in records))
        assert firsts == sorted(firsts)


def test_s01_a_task_that_runs_again_doubles_nothing(
    write_once: Write, topic: str, master: Broker
) -> None:
    def fail() -> None:
        raise RuntimeError("planned")

    groups = pa.array([f"g{number % 5}" for number in range(LOT_ROWS)])
    with pytest.raises(RuntimeError, match="planned"):
        write_once(topic, lots(fail, messageGroup=groups))
    first = stored(master, topic, 1)
    assert write_once(topic, lots(lambda: None, messageGroup=groups)) == len(ALL)
    found = [one for records in stored(master, topic, len(ALL)).values() for one in records]
    assert len(found) == len(ALL)
    assert {int(one.body[:7]) for one in found} == ALL
    assert 0 < len(numbers_of(first)) < len(ALL)


def test_s03_a_broker_that_is_killed_and_comes_back_doubles_nothing(
    write_once: Write, fragile_cluster: Cluster
) -> None:
    broker = fragile_cluster.broker(B)
    fragile_cluster.create_topic("effectively-once", QUEUES, [broker])
    due = threading.Event()
    groups = pa.array([f"g{number % 5}" for number in range(LOT_ROWS)])
    with ThreadPoolExecutor(1) as pool:
        rows = lots(due.set, messageGroup=groups)
        writing = pool.submit(write_once, "effectively-once", rows)
        assert due.wait(WAIT_SECONDS_MAX)
        # During outstanding batches, so that answers are lost.
        broker.kill()
        fragile_cluster.heal()
        assert writing.result(WAIT_SECONDS_MAX) == len(ALL)
    found = stored(broker, "effectively-once", len(ALL))
    assert sorted(int(one.body[:7]) for r in found.values() for one in r) == sorted(ALL)

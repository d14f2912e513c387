"""Blocks of a task's rows: complete, in the right queue and order, with the right names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.task_writer import LOT_BYTES, WriteConfig, lots, write_batches
from pyspark_rocketpy.transport.grpc_v1.send.block_writer import GrpcStagingWriter
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import Attempt, BatchName, Block
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.pull_wire import BlockRequest, serialize_block
from rocketpy_proto.record import BLANK_BYTES, decode_record
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of
from tests.unit.connector.transport.grpc_v1.scripted_broker import (
    BUSY,
    LOSE,
    QUEUES,
    STORE,
    ScriptedBroker,
    parts_of,
)
from tests.unit.connector.transport.scripted import MemoryBroker, ScriptedTransport

NAME = BatchName("query", 5)
MIB = 1 << 20


@dataclass(frozen=True)
class RecordedTransport(GrpcTransport):
    """A transport that keeps the acknowledged blocks, in their order."""

    acknowledged: list[broker_pb2.StageBlocksRequest] = field(default_factory=list)

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        return super().block_writer(None) if attempt is None else _RecordedWriter(self, attempt)


class _RecordedWriter(GrpcStagingWriter):
    def __init__(self, transport: RecordedTransport, attempt: Attempt) -> None:
        self._transport = transport
        super().__init__(transport.client, transport.retries, transport.send_timeout_ms, attempt)

    def _acknowledged(
        self,
        request: BlockRequest[broker_pb2.StageBlocksRequest],
        response: broker_pb2.StageBlocksResponse,
    ) -> None:
        if request.records:
            sent = serialize_block(request)
            self._transport.acknowledged.append(broker_pb2.StageBlocksRequest.FromString(sent))
        super()._acknowledged(request, response)


def write(
    broker: ScriptedBroker,
    batches: Iterable[pa.RecordBatch],
    *,
    topic: str | None = "T",
    batch_bytes_max: int = 2 * MIB,
    token: int = 9,
    waiting_bytes_max: int = 64 * MIB,
    lot_bytes: int = LOT_BYTES,
) -> list[broker_pb2.StageBlocksRequest]:
    """Writes as partition 3 does; returns the acknowledged blocks in their order."""
    batches = list(batches)
    names = tuple(batches[0].schema.names)
    transport = RecordedTransport(broker.config, RetryPolicy(5, 1), 10_000)
    config = WriteConfig(
        transport,
        topic,
        names,
        batch_bytes_max,
        token,
        waiting_bytes_max=waiting_bytes_max,
        lot_bytes=lot_bytes,
    )
    written = write_batches(config, iter(batches), NAME, 3)
    assert written.rows == sum(batch.num_rows for batch in batches)
    return transport.acknowledged


def all_bodies(blocks: Iterable[broker_pb2.StageBlocksRequest | Block]) -> list[bytes]:
    return [body for block in blocks for body in bodies_of(block.records, block.record_sizes)]


def test_row_numbers_run_on_over_the_batches_of_a_task() -> None:
    batches = [pa.record_batch({"body": pa.array([b"a", b"b"])})] * 3
    batches.append(pa.record_batch({"body": pa.array([b"a", None])}))
    with (
        ScriptedBroker() as broker,
        pytest.raises(ColumnError, match="row 7 of partition 3"),
    ):
        write(broker, batches)


def test_rows_keep_their_number_where_queues_part_them() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"x"] * 4),
            "queueId": pa.array([1, 0, 1, 0], pa.int8()),
            "tags": pa.array([None, None, None, "\x01"]),
        }
    )
    with ScriptedBroker() as broker, pytest.raises(ColumnError, match=r"tags .* row 3 of"):
        write(broker, [batch])


def test_nothing_of_a_batch_with_a_wrong_row_is_sent() -> None:
    """Sends rows as early as possible: then only rows of the batch before are sent."""
    fine = pa.record_batch({"body": pa.array([b"fine"] * 10), "tags": pa.array(["fine"] * 10)})
    tags = ["fine"] * 999 + ["a\x01b"]
    wrong = pa.record_batch({"body": pa.array([b"x"] * 1_000), "tags": pa.array(tags)})
    with ScriptedBroker() as broker:
        with pytest.raises(ColumnError, match="row 1009 of partition 3"):
            write(broker, [fine, wrong], batch_bytes_max=2_000, waiting_bytes_max=0, lot_bytes=1)
        assert set(broker.bodies()) <= {b"fine"}


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 500))
def test_lots_hold_all_rows_and_few_are_small(counts: list[int], lot_bytes: int) -> None:
    numbers = iter(range(10_000))
    batches = [
        pa.record_batch({"body": pa.array([next(numbers) for _ in range(count)], pa.int64())})
        for count in counts
    ]
    joined = list(lots(batches, lot_bytes))
    rows = [number for lot in joined for number in lot.column("body").to_pylist()]
    assert rows == list(range(sum(counts)))
    assert all(lot.nbytes >= lot_bytes for lot in joined[:-1])
    assert all(lot.num_rows for lot in joined)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["T", "U", None]),
                st.sampled_from([None, 0, 1, 3]),
                st.sampled_from([None, "", "a", "b", "c"]),
                st.integers(0, 300),
            ),
            max_size=20,
        ),
        max_size=8,
    ),
    st.sampled_from([1_024, 4_096]),
    st.sampled_from([0, 2_000, 10_000, 1 << 20]),
    st.sampled_from([1, 2_000, 1 << 20]),
)
def test_k07_every_row_arrives_once_and_in_order(
    rows: list[list[tuple[str | None, int | None, str | None, int]]],
    batch_bytes_max: int,
    waiting_bytes_max: int,
    lot_bytes: int,
) -> None:
    """Asserts the rows' order in each queue, for random batches, topics, groups and budgets."""
    numbers = iter(range(1_000))
    places: dict[bytes, tuple[str | None, int | None, str | None, int]] = {}
    batches = []
    for batch in rows:
        bodies = [b"%d " % next(numbers) + b"x" * row[3] for row in batch]
        places |= dict(zip(bodies, batch, strict=True))
        columns = [[row[column] for row in batch] for column in range(3)]
        batches.append(
            pa.record_batch(
                {
                    "body": pa.array(bodies, pa.binary()),
                    "topic": pa.array(columns[0], pa.string()),
                    "queueId": pa.array(columns[1], pa.int32()),
                    "messageGroup": pa.array(columns[2], pa.string()),
                }
            )
        )
    stored = stored_queues(batches, batch_bytes_max, waiting_bytes_max, lot_bytes)
    assert sorted(body for bodies in stored.values() for body in bodies) == sorted(places)
    of_groups: dict[tuple[str, str], set[int]] = {}
    for (topic, queue_id), bodies in stored.items():
        order = [int(body.split()[0]) for body in bodies]
        assert order == sorted(order)
        for body in bodies:
            wanted_topic, wanted_queue, group, _ = places[body]
            assert topic == (wanted_topic or "T")
            assert wanted_queue in {None, queue_id}
            if group and wanted_queue is None:
                of_groups.setdefault((topic, group), set()).add(queue_id)
    assert all(len(queues) == 1 for queues in of_groups.values())


def stored_queues(
    batches: list[pa.RecordBatch], batch_bytes_max: int, waiting_bytes_max: int, lot_bytes: int
) -> dict[tuple[str, int], list[bytes]]:
    """Returns the content of each queue after the batches have been written."""
    broker = MemoryBroker()
    for topic in ("T", "U"):
        broker.create_topic(topic, QUEUES)
    config = WriteConfig(
        ScriptedTransport(broker),
        "T",
        ("body", "topic", "queueId", "messageGroup"),
        batch_bytes_max,
        waiting_bytes_max=waiting_bytes_max,
        lot_bytes=lot_bytes,
    )
    write_batches(config, iter(batches), NAME, 3)
    return {
        (topic, queue_id): [decode_record(message.record, 0).record.body for message in queue]
        for topic, queues in broker.topics.items()
        for queue_id, queue in enumerate(queues)
    }


def test_rows_over_many_queues_make_few_blocks_however_they_come() -> None:
    """Asserts that there is not one block for each queue and Arrow batch."""
    batch = pa.record_batch(
        {
            "body": pa.array([b"x"] * 100),
            "queueId": pa.array([number % QUEUES for number in range(100)]),
        }
    )
    with ScriptedBroker() as broker:
        write(broker, [batch] * 50)
        assert [block.queue_id for block in broker.stored] == [OWN_QUEUES]
        assert [len(broker.bodies(queue_id)) for queue_id in range(QUEUES)] == [1_250] * QUEUES


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "caf\u00e9"])
def test_a_topic_that_no_broker_takes_is_named_by_its_row(name: str) -> None:
    batch = pa.record_batch({"body": pa.array([b"x"] * 3), "topic": pa.array(["T", name, name])})
    with ScriptedBroker() as broker:
        with pytest.raises(ColumnError, match=r"column topic is .* row 1 of .* up to 127"):
            write(broker, [batch])
        assert broker.stored == []


def test_blocks_fit_the_broker_s_segments_with_what_waiting_adds() -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * 1_000] * 100)})
    with ScriptedBroker(segment_bytes=20_000) as broker:
        write(broker, [batch])
        sizes = [len(block.records) for block in broker.stored]
    assert 5_000 < max(sizes) <= (20_000 - BLANK_BYTES) // 2


@pytest.mark.parametrize("topic", ["T", None])
@pytest.mark.parametrize("count", [4, 6, 1_000])
def test_p06_a_task_s_rows_go_over_all_queues(topic: str | None, count: int) -> None:
    columns = {"body": pa.array([b"%d" % number for number in range(count)])}
    if topic is None:
        columns["topic"] = pa.array([f"T{number % 2}" for number in range(count)])
    with ScriptedBroker() as broker:
        write(broker, [pa.record_batch(columns)], topic=topic)
        for name in {block.topic for block in broker.stored}:
            (block,) = [block for block in broker.stored if block.topic == name]
            parts = parts_of(block)
            rows = [len(bodies_of(part.records, part.record_sizes)) for part in parts.values()]
            assert len(parts) == min(QUEUES, sum(rows))
            assert max(rows) - min(rows) <= 1


def test_p06_single_rows_go_to_one_queue_after_the_other_batch_by_batch() -> None:
    batch, queues = pa.record_batch({"body": pa.array([b"x"])}), set()
    for batch_id in range(40):
        transport = ScriptedTransport(MemoryBroker())
        transport.broker.create_topic("T", QUEUES)
        config = WriteConfig(transport, "T", ("body",), 2 * MIB)
        write_batches(config, iter([batch]), BatchName("query", batch_id), 0)
        queues |= {i for i, queue in enumerate(transport.broker.topics["T"]) if queue}
    assert queues == set(range(QUEUES))


def test_p06_a_batch_that_is_written_again_goes_to_the_same_queues() -> None:
    batches = [pa.record_batch({"body": pa.array([b"x"] * count)}) for count in (3, 12_000, 7)]
    places = []
    for _ in range(2):
        with ScriptedBroker() as broker:
            write(broker, batches, lot_bytes=1)
            places.append([len(broker.bodies(queue_id)) for queue_id in range(QUEUES)])
    assert places[0] == places[1]
    # Three single rows; then two slices that fill blocks; then the last rows.
    assert sorted(places[0]) == [1, 8, 6_000, 6_001]


@given(st.lists(st.sampled_from(["a", "b", "c", "", None]), min_size=1, max_size=60))
def test_k07_a_group_stays_in_one_queue_in_its_order(groups: list[str | None]) -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([str(number).encode() for number in range(len(groups))]),
            "messageGroup": pa.array(groups, pa.string()),
        }
    )
    with ScriptedBroker() as broker:
        write(broker, [batch, batch], batch_bytes_max=1_024)
        queues = {queue_id: broker.bodies(queue_id) for queue_id in range(QUEUES)}
    for group in {group for group in groups if group}:
        wanted = [str(row).encode() for row, one in enumerate(groups) if one == group]
        holding = [ids for ids, bodies in queues.items() if wanted[0] in bodies]
        in_order = [body for body in queues[holding[0]] if body in wanted]
        assert len({groups[int(body)] for body in in_order}) == 1
        assert in_order == wanted * 2


def test_k07_order_within_a_group_survives_broken_streams(waits_ms: list[int]) -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"%03d" % number for number in range(200)]),
            "messageGroup": pa.array(["g"] * 200),
        }
    )
    script = [STORE] * 3 + [LOSE] + [STORE] * 9 + [BUSY] + [STORE] * 4 + [LOSE]
    with ScriptedBroker(*script) as broker:
        acknowledged = write(broker, [batch], batch_bytes_max=1_024)
        staged = broker.bodies()
    assert staged == all_bodies(acknowledged) == [b"%03d" % number for number in range(200)]
    # Two streams break. The third fault, the last of the script, depends on how many blocks were in
    # flight when the first stream broke.
    assert len(waits_ms) >= 2


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_p06_queue_ids_of_any_width(kind: pa.DataType) -> None:
    batch = pa.record_batch({"body": pa.array([b"a", b"b"]), "queueId": pa.array([3, None], kind)})
    with ScriptedBroker() as broker:
        write(broker, [batch])
        assert b"a" in broker.bodies(3)
        assert sorted(broker.bodies()) == [b"a", b"b"]


def test_a_task_without_rows_asks_nobody() -> None:
    with ScriptedBroker() as broker:
        broker.stop()
        empty = pa.record_batch({"body": pa.array([], pa.binary())})
        assert write(broker, [empty], token=0) == []

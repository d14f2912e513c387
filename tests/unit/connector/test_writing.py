"""A task's rows become blocks: of the right size, in the right queue, with the right names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.batches import BatchName
from pyspark_rocketpy.blocks import SIZE_BYTES, BlockForm
from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.retrying import RetryPolicy
from pyspark_rocketpy.routing import QueueRows
from pyspark_rocketpy.rows import Rows
from pyspark_rocketpy.writing import WriteConfig, write_batches
from rocketpy_proto.record import RecordBlock, property_column
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.blocks import bodies_of
from tests.unit.connector.scripted_broker import BUSY, LOSE, QUEUES, STORE, ScriptedBroker

NAME = BatchName("query", 5)
MIB = 1 << 20


def rows_of(**columns: pa.Array) -> Rows:
    return Rows.of(pa.record_batch(columns), tuple(columns), 100, 3)


def requests_of(
    rows: Rows, block_bytes_max: int = 2 * MIB, request_bytes_max: int = 32 * MIB
) -> list[broker_pb2.AppendRequest]:
    form = BlockForm(block_bytes_max, request_bytes_max, prepared_token=9, origin=None)
    return list(form.requests(QueueRows("T", 1, rows)))


def write(
    broker: ScriptedBroker,
    batches: Iterable[pa.RecordBatch],
    *,
    topic: str | None = "T",
    batch_bytes_max: int = 2 * MIB,
    token: int = 9,
    tells: bool = False,
) -> list[broker_pb2.AppendRequest]:
    """Write as partition 3 does; the acknowledged blocks in their order."""
    acknowledged: list[broker_pb2.AppendRequest] = []
    batches = list(batches)
    names = tuple(batches[0].schema.names)
    config = WriteConfig(
        broker.config, RetryPolicy(5, 1), topic, names, batch_bytes_max, 10_000, token, tells
    )

    def acknowledge(
        request: broker_pb2.AppendRequest, _response: broker_pb2.AppendResponse
    ) -> None:
        acknowledged.append(request)

    rows = write_batches(config, iter(batches), NAME, 3, acknowledge)
    assert rows == sum(batch.num_rows for batch in batches)
    return acknowledged


def properties(requests: Iterable[broker_pb2.AppendRequest], name: str) -> Iterator[str | None]:
    """A property of every record."""
    for request in requests:
        sizes = np.frombuffer(request.record_sizes, ">i4").astype(np.int32)
        yield from property_column(RecordBlock.parse(request.records, sizes), name).to_pylist()


def all_bodies(requests: Iterable[broker_pb2.AppendRequest]) -> list[bytes]:
    return [
        body for request in requests for body in bodies_of(request.records, request.record_sizes)
    ]


@given(st.lists(st.sampled_from([0, 10, 300, 5_000, 40_000]), min_size=1, max_size=40))
def test_skewed_bodies_make_blocks_within_the_limit(sizes: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    requests = requests_of(rows_of(body=pa.array(bodies, pa.binary())), 10_000)
    assert all_bodies(requests) == bodies
    for request in requests:
        count = len(request.record_sizes) // SIZE_BYTES
        assert count == 1 or len(request.records) + len(request.record_sizes) <= 10_000
        assert request.prepared_token == 9


def test_skewed_properties_make_blocks_within_the_limit() -> None:
    maps = [[("p", "x" * (9_000 if number % 10 == 0 else 1))] for number in range(100)]
    rows = rows_of(
        body=pa.array([b"x"] * 100),
        properties=pa.array(maps, pa.map_(pa.string(), pa.string())),
    )
    requests = requests_of(rows, 20_000)
    assert len(all_bodies(requests)) == 100
    assert max(len(request.records) for request in requests) <= 20_000


def test_blocks_never_exceed_what_the_broker_takes() -> None:
    rows = rows_of(body=pa.array([bytes(1_000)] * 50))
    requests = requests_of(rows, 1 * MIB, request_bytes_max=5_000)
    sizes = [len(request.records) + len(request.record_sizes) for request in requests]
    assert max(sizes) <= 5_000
    assert len(requests) < 25


def test_a_message_that_no_request_can_hold_is_named() -> None:
    rows = rows_of(body=pa.array([b"a", bytes(3_000)]), tags=pa.array([None, "blue"]))
    with pytest.raises(OversizeMessageError, match=r"row 101 of partition 3 \(tags 'blue'\)"):
        requests_of(rows, request_bytes_max=2_000)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"tags": ["fine", "a\x02b"]}, "column tags .* row 101 .*separator"),
        ({"keys": ["fine", "a\x01b"]}, "column keys .* row 101 .*separator"),
        ({"messageGroup": ["fine", "a\x01b"]}, "column messageGroup .* row 101 .*separator"),
        ({"properties": [None, [("", "x")]]}, "column properties .* row 101 .*is empty"),
        ({"properties": [None, [("a\x01", "x")]]}, "column properties .* row 101 .*separator"),
        ({"properties": [None, [("a", "x" * 40_000)]]}, "column properties .* row 101 .*32767"),
    ],
)
def test_what_cannot_be_encoded_is_named_by_column_and_row(
    columns: dict[str, list[object]], words: str
) -> None:
    kinds = {"properties": pa.map_(pa.string(), pa.string())}
    arrays = {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
    with pytest.raises(ColumnError, match=words):
        requests_of(rows_of(body=pa.array([b"a", b"b"]), **arrays))


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
    tags = ["fine"] * 999 + ["a\x01b"]
    batch = pa.record_batch({"body": pa.array([b"x"] * 1_000), "tags": pa.array(tags)})
    with ScriptedBroker() as broker:
        with pytest.raises(ColumnError):
            write(broker, [batch], batch_bytes_max=2_000)
        assert broker.stored == []


def test_a_message_tells_where_it_comes_from_on_request() -> None:
    def written() -> list[tuple[str | None, ...]]:
        batch = pa.record_batch(
            {
                "body": pa.array([b"x"] * 10),
                "messageGroup": pa.array([str(number % 3) for number in range(10)]),
            }
        )
        with ScriptedBroker() as broker:
            blocks = write(broker, [batch, batch], tells=True)
        names = ("rocketpy_writer", "rocketpy_batch", "rocketpy_partition", "rocketpy_sequence")
        return list(zip(*(properties(blocks, name) for name in names), strict=True))

    told = written()
    assert {one[:3] for one in told} == {("query", "5", "3")}
    assert sorted(int(one[3] or -1) for one in told) == list(range(20))
    assert told == written()


def test_a_message_tells_nothing_unless_asked() -> None:
    with ScriptedBroker() as broker:
        blocks = write(broker, [pa.record_batch({"body": pa.array([b"x"])})])
    assert list(properties(blocks, "rocketpy_writer")) == [None]


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
        stored = broker.bodies()
    assert all_bodies(acknowledged) == [b"%03d" % number for number in range(200)]
    last_copies = sorted({body: place for place, body in enumerate(stored)}.items())
    places = [place for _body, place in last_copies]
    assert places == sorted(places)
    # Two streams break; how much was under way when the first one broke tells whether the third
    # fault, the last of the script, is met.
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
        assert write(broker, [pa.record_batch({"body": pa.array([], pa.binary())})]) == []

"""Input that the block encoder takes, and input that it refuses rather than store it changed."""

from __future__ import annotations

import ipaddress
import mmap
import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.record import (
    COLUMN_TYPES,
    BlockColumns,
    CheckedBlock,
    Host,
    MalformedRecordError,
    Record,
    RecordError,
    UnencodableRecordError,
    decode_record,
    encode_block,
    encode_record,
)
from rocketpy_proto.record.layout import BLOCK_BYTES_MAX, PROPERTIES_BYTES_MAX

MAP = COLUMN_TYPES["properties"]
# Any port can be read from a record, but none beyond 32 bits can be written.
PORT_BEYOND = Host(ipaddress.IPv4Address("10.0.0.1"), 1 << 31)


def encode(**columns: object) -> list[Record]:
    """Returns the records of a block of two messages, with these columns and the required ones."""
    given_columns: dict[str, object] = {
        "body": pa.array([b"x", b"y"]),
        "topic": "T",
        "queue_id": 0,
        **columns,
    }
    encoded = encode_block(BlockColumns(**given_columns))  # type: ignore[arg-type]
    data, position, records = encoded.data.to_pybytes(), 0, []
    for size in encoded.sizes.tolist():
        records.append(decode_record(data, position).record)
        position += size
    return records


@pytest.mark.parametrize(
    ("columns", "field", "index"),
    [
        ({"queue_id": pa.array([1, None], pa.int32())}, "queue_id", 1),
        ({"queue_id": pa.array([0, 1 << 31], pa.int64())}, "queue_id", 1),
        ({"queue_id": pa.array([-(1 << 31) - 1, 0], pa.int64())}, "queue_id", 0),
        ({"queue_id": pa.array([1], pa.int32())}, "queue_id", None),
        ({"queue_id": 1 << 31}, "queue_id", None),
        ({"flag": -(1 << 31) - 1}, "flag", None),
        ({"sys_flag": 1 << 31}, "sys_flag", None),
        ({"born_timestamp_ms": pa.array([None, 5], pa.int64())}, "born_timestamp", 0),
        ({"born_timestamp_ms": 1 << 63}, "born_timestamp", None),
        ({"born_host": PORT_BEYOND}, "port", None),
        ({"store_host": PORT_BEYOND}, "port", None),
        ({"topic": pa.array(["T", "t" * 40_000])}, "topic", 1),
        ({"extra": {"a\x01b": pa.array(["v", "w"])}}, "property name", None),
        ({"extra": {"": "v"}}, "property name", None),
        ({"properties": pa.array([[], [("a\x02b", "v")]], MAP)}, "property name", 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_not_changed(
    columns: dict[str, object], field: str, index: int | None
) -> None:
    with pytest.raises(UnencodableRecordError) as caught:
        encode(**columns)
    assert (caught.value.field, caught.value.index) == (field, index)


@pytest.mark.parametrize(
    "values", [(-(1 << 31), (1 << 31) - 1), (0, 1)], ids=["the widest", "small ones"]
)
def test_numbers_that_fit_are_kept(values: tuple[int, int]) -> None:
    for width in (pa.int32(), pa.int64()):
        records = encode(queue_id=pa.array(values, width))
        assert tuple(record.queue_id for record in records) == values


def test_a_plain_extra_value_stands_for_all_rows() -> None:
    assert [dict(record.properties) for record in encode(extra={"CLUSTER": "c"})] == [
        {"CLUSTER": "c"},
        {"CLUSTER": "c"},
    ]


def test_tags_win_over_an_extra_column_and_extra_over_the_map() -> None:
    records = encode(
        tags=pa.array(["tag", None]),
        extra={"TAGS": "extra", "CLUSTER": pa.array(["c", None])},
        properties=pa.array([[("TAGS", "map"), ("CLUSTER", "m")]] * 2, MAP),
    )
    assert [dict(record.properties) for record in records] == [
        {"TAGS": "tag", "CLUSTER": "c"},
        {"TAGS": "map", "CLUSTER": "m"},
    ]


def test_columns_that_are_slices_of_others_are_read_at_their_place() -> None:
    records = encode(
        body=pa.array([b"0", b"x", b"y", b"3"]).slice(1, 2),
        topic=pa.array(["A", "B", "C", "D"]).slice(1, 2),
        queue_id=pa.array([0, 1, 2, 3], pa.int32()).slice(1, 2),
        tags=pa.array(["0", "t", None, "3"]).slice(1, 2),
        keys=pa.array([["0"], ["k", "l"], None, ["3"]]).slice(1, 2),
        properties=pa.array([[("a", "0")], [("a", "1"), ("b", "2")], None, []], MAP).slice(1, 2),
    )
    assert [(r.body, r.topic, r.queue_id, dict(r.properties)) for r in records] == [
        (b"x", "B", 1, {"TAGS": "t", "KEYS": "k l", "a": "1", "b": "2"}),
        (b"y", "C", 2, {}),
    ]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_any_string_type_of_arrow_is_taken(text: pa.DataType) -> None:
    records = encode(
        body=pa.array(["ü", ""], text),
        topic=pa.array(["A", "B"], text),
        tags=pa.array(["t", None], text),
    )
    assert [(r.body, r.topic, dict(r.properties)) for r in records] == [
        ("ü".encode(), "A", {"TAGS": "t"}),
        (b"", "B", {}),
    ]


def test_large_lists_and_maps_are_taken() -> None:
    large = pa.large_string()
    records = encode(
        keys=pa.array([["k", None, "l"], None], pa.large_list(large)),
        properties=pa.array([[("a", "b"), ("n", None)], None], pa.map_(large, large)),
    )
    assert [dict(r.properties) for r in records] == [{"KEYS": "k l", "a": "b"}, {}]


def test_a_block_of_no_messages_has_no_bytes() -> None:
    none = pa.array([], pa.string())
    empty = {"body": none, "topic": none, "tags": none, "properties": pa.array([], MAP)}
    assert encode(**empty, queue_id=pa.array([], pa.int32())) == []


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=4)


@given(st.dictionaries(ANY_TEXT, st.one_of(st.none(), ANY_TEXT, st.just("\x02")), max_size=4))
def test_both_forms_refuse_the_same_properties(properties: dict[str, str]) -> None:
    try:
        single = encode_record(Record("T", 0, b"x", properties))
    except UnencodableRecordError:
        single = None
    columns = BlockColumns(
        body=pa.array([b"x"]),
        topic="T",
        queue_id=0,
        properties=pa.array([list(properties.items())], MAP),
    )
    try:
        block = encode_block(columns).data.to_pybytes()
    except UnencodableRecordError:
        block = None
    assert block == single


def test_a_single_record_refuses_what_its_layout_cannot_hold() -> None:
    for record in (
        Record("T", 1 << 31, b""),
        Record("T", 0, b"", born_host=PORT_BEYOND),
        Record("T", 0, b"", {"n": "\ud800"}),
        Record("\ud800", 0, b""),
        Record("t" * 40_000, 0, b""),
    ):
        with pytest.raises(UnencodableRecordError):
            encode_record(record)


def test_a_single_record_refuses_more_properties_than_their_length_can_say() -> None:
    name = "n"
    fitting = "v" * (PROPERTIES_BYTES_MAX - len(name) - 2)
    record = decode_record(encode_record(Record("T", 0, b"", {name: fitting}))).record
    assert record.properties == {name: fitting}
    with pytest.raises(UnencodableRecordError, match="has more than 32767 bytes"):
        encode_record(Record("T", 0, b"", {name: fitting + "v"}))


def test_a_block_beyond_what_offsets_can_reach_is_not_encoded() -> None:
    # Untouched pages take no memory.
    octets = pa.py_buffer(mmap.mmap(-1, BLOCK_BYTES_MAX))

    def checked(body_bytes: int) -> int | str:
        offsets = pa.py_buffer(np.array([0, 1, body_bytes], np.int32))
        bodies = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, octets])
        try:
            return int(CheckedBlock(BlockColumns(bodies, "T", 0)).sizes.sum())
        except UnencodableRecordError as error:
            return str(error)

    fitting = BLOCK_BYTES_MAX - 2 * len(encode_record(Record("T", 0, b"")))
    assert checked(fitting) == BLOCK_BYTES_MAX
    assert f"block {BLOCK_BYTES_MAX + 1} bytes are more than" in str(checked(fitting + 1))


@given(st.lists(st.binary(max_size=20), max_size=20), st.randoms())
def test_a_checked_block_tells_its_sizes_and_its_records_can_be_reordered(
    bodies: list[bytes], random: random.Random
) -> None:
    checked = CheckedBlock(BlockColumns(body=pa.array(bodies, pa.binary()), topic="T", queue_id=0))
    order = list(range(len(bodies)))
    random.shuffle(order)
    block = checked.encode().take(np.array(order, np.int64))
    assert block.sizes.tolist() == checked.sizes[order].tolist()
    position = 0
    for number, size in zip(order, block.sizes.tolist(), strict=True):
        assert decode_record(block.data, position).record.body == bodies[number]
        position += size
    assert position == len(block.data)


@pytest.mark.parametrize(
    "error",
    [
        MalformedRecordError("body CRC differs", 120, 1),
        UnencodableRecordError("queue_id", 1 << 31, "does not fit in 32 bits", 7),
    ],
)
def test_errors_come_whole_out_of_another_process(error: RecordError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))

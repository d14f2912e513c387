"""Property-based tests that both forms of the codec agree on any input."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_proto.record import (
    COLUMN_TYPES,
    BlockColumns,
    Host,
    MalformedRecordError,
    Record,
    RecordBlock,
    UnencodableRecordError,
    crc,
    decode_record,
    encode_block,
    encode_offset_message_id,
    encode_record,
    has_queue_offset,
    java_hash,
    java_hashes,
    scan_sizes,
    to_record_batch,
)
from rocketpy_proto.record.block.record_block import TAGS_ROWS
from tests.unit.record.strategies import PROPERTIES, RECORDS, TEXTS, block_of

ALL = pa.schema(list(COLUMN_TYPES.items()))
HOST = Host.parse("10.0.0.2:10911")
V6_HOST = Host.parse("[2001:db8::2]:10911")


def row_of(record: Record) -> dict[str, object]:
    """Returns the expected columns of a record, by its single form."""
    properties = {name: value for name, value in record.properties.items() if value}
    keys = properties.get("KEYS")
    offset_id = encode_offset_message_id(record.store_host, record.physical_offset)
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "body": record.body,
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "properties": list(properties.items()),
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "bornTimestamp": microseconds(record.born_timestamp_ms),
        "storeTimestamp": microseconds(record.store_timestamp_ms),
        "bornHost": str(record.born_host),
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag | 0x10 * record.born_host.is_v6 | 0x20 * record.store_host.is_v6,
        "commitLogOffset": record.physical_offset,
        "messageGroup": properties.get("__SHARDINGKEY"),
        "bodyError": None,
    }


def microseconds(timestamp_ms: int) -> int | None:
    """Returns a time of the years 1678 to 2261 in µs; None for other years."""
    return timestamp_ms * 1000 if -9_214_560_000_000 <= timestamp_ms < 9_214_646_400_000 else None


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Returns rows with timestamps as plain microseconds."""
    arrays = [
        column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    rows: list[dict[str, object]] = pa.RecordBatch.from_arrays(
        arrays, names=batch.schema.names
    ).to_pylist()
    return rows


@given(st.lists(RECORDS, max_size=8))
@settings(max_examples=150)
def test_every_column_of_a_block_is_what_the_single_form_says(records: list[Record]) -> None:
    block = block_of(records)
    block.verify_body_crc()
    batch = to_record_batch(block, ALL)
    batch.validate(full=True)
    assert rows_of(batch) == [row_of(record) for record in records]
    for record, position in zip(records, block.positions.tolist(), strict=True):
        decoded = decode_record(block.data.tobytes(), position)
        expected = {name: value for name, value in record.properties.items() if value}
        assert decoded.record.properties == expected
        assert (decoded.record.body, decoded.record.topic) == (record.body, record.topic)


@given(st.lists(RECORDS, max_size=8))
def test_tags_codes_are_the_java_hash_of_the_tags(records: list[Record]) -> None:
    expected = [java_hash(record.properties.get("TAGS", "")) for record in records]
    assert block_of(records).tags_codes().tolist() == expected


@given(st.lists(RECORDS, max_size=8))
def test_sizes_are_found_by_walking(records: list[Record]) -> None:
    block = block_of(records)
    assert scan_sizes(block.data.tobytes()).tolist() == block.sizes.tolist()


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=20))
def test_java_hashes_of_a_column_are_those_of_its_strings(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    expected = [java_hash(text or "") for text in texts]
    assert java_hashes(column).tolist() == expected
    assert java_hashes(column.slice(1)).tolist() == expected[1:]


ROWS = st.lists(
    st.tuples(
        st.binary(max_size=30),
        st.one_of(st.none(), TEXTS),
        st.one_of(st.none(), st.lists(TEXTS.filter(lambda key: " " not in key), max_size=3)),
        st.one_of(st.none(), PROPERTIES),
        st.one_of(st.none(), TEXTS),
    ),
    max_size=8,
)


@given(ROWS, st.sampled_from([HOST, V6_HOST]), st.sampled_from(["T", "x" * 130, "ü" * 64]))
@settings(max_examples=150)
def test_a_block_is_encoded_to_the_bytes_of_its_single_records(
    rows: list[tuple[bytes, str | None, list[str] | None, dict[str, str] | None, str | None]],
    host: Host,
    topic: str,
) -> None:
    bodies, tags, keys, maps, groups = zip(*rows, strict=True) if rows else ((),) * 5
    encoded = encode_block(
        BlockColumns(
            body=pa.array(bodies, pa.binary()),
            topic=topic,
            queue_id=3,
            tags=pa.array(tags, pa.string()),
            keys=pa.array(keys, pa.list_(pa.string())),
            properties=pa.array([m and list(m.items()) for m in maps], COLUMN_TYPES["properties"]),
            extra={"__SHARDINGKEY": pa.array(groups, pa.string())},
            born_timestamp_ms=17,
            born_host=host,
            sys_flag=0x2,
            flag=9,
        )
    )
    expected = []
    for body, tag, key, properties, group in rows:
        named = {"TAGS": tag, "KEYS": " ".join(filter(None, key or [])), "__SHARDINGKEY": group}
        merged = {name: value for name, value in named.items() if value}
        merged |= {n: v for n, v in (properties or {}).items() if n not in merged}
        expected.append(
            encode_record(
                Record(
                    topic,
                    3,
                    body,
                    merged,
                    flag=9,
                    sys_flag=0x2,
                    born_timestamp_ms=17,
                    born_host=host,
                )
            )
        )
    assert encoded.data.to_pybytes() == b"".join(expected)
    assert encoded.sizes.tolist() == [len(one) for one in expected]


@given(st.lists(st.tuples(st.sampled_from(["A", "B", "y" * 140]), st.integers(0, 9))))
def test_topics_and_queue_ids_may_differ_by_row(rows: list[tuple[str, int]]) -> None:
    encoded = encode_block(
        BlockColumns(
            body=pa.array([b"b"] * len(rows), pa.binary()),
            topic=pa.array([topic for topic, _ in rows], pa.string()),
            queue_id=pa.array([queue_id for _, queue_id in rows], pa.int32()),
        )
    )
    expected = [encode_record(Record(topic, queue_id, b"b")) for topic, queue_id in rows]
    assert encoded.data.to_pybytes() == b"".join(expected)


@given(st.lists(RECORDS, min_size=1, max_size=6), st.booleans())
def test_s03_patching_numbers_only_records_with_a_place_in_the_queue(
    records: list[Record], v6: bool
) -> None:
    host = V6_HOST if v6 else HOST
    block = block_of([r for r in records if r.store_host.is_v6 == v6])
    before = block.data.copy()
    block.patch_stored(
        queue_offset_first=100,
        physical_offset_first=5000,
        store_timestamp_ms=77,
        store_host=host,
        queue_id=4,
    )
    again = RecordBlock.parse(block.data.tobytes(), block.sizes)
    number = 100
    for index, position in enumerate(block.positions.tolist()):
        old = decode_record(before.tobytes(), position).record
        new = decode_record(block.data.tobytes(), position).record
        listed = bool(has_queue_offset(old.sys_flag))
        assert new.queue_offset == (number if listed else 0)
        number += listed
        assert (new.physical_offset, new.store_timestamp_ms) == (5000 + position, 77)
        assert (new.store_host, new.queue_id) == (host, 4)
        assert (new.body, new.topic, new.properties) == (old.body, old.topic, old.properties)
        assert (new.born_host, new.flag, new.sys_flag) == (old.born_host, old.flag, old.sys_flag)
        assert again.header["queue_offset"][index] == new.queue_offset


def test_patching_refuses_a_host_of_another_size() -> None:
    block = block_of([Record("T", 0, b"x", store_host=HOST)])
    with pytest.raises(UnencodableRecordError, match="IP version"):
        block.patch_stored(
            queue_offset_first=0,
            physical_offset_first=0,
            store_timestamp_ms=0,
            store_host=V6_HOST,
            queue_id=0,
        )


def outcome_of_single(data: bytes, sizes: list[int]) -> object:
    """Returns the rows by the single form, or None if a record is malformed."""
    rows = []
    position = 0
    for size in sizes:
        try:
            decoded = decode_record(data[position : position + size])
        except MalformedRecordError:
            return None
        if decoded.size != size:
            return None
        rows.append((decoded.record.topic, decoded.record.body, dict(decoded.record.properties)))
        position += size
    return rows if position == len(data) else None


def outcome_of_block(data: bytes, sizes: list[int]) -> object:
    """Returns the rows by the block form, or None."""
    try:
        block = RecordBlock.parse(data, np.array(sizes, np.int32))
        block.verify_body_crc()
    except MalformedRecordError:
        return None
    names = ["topic", "properties"]
    batch = to_record_batch(block, pa.schema([(name, COLUMN_TYPES[name]) for name in names]))
    block.tags_codes()
    starts, lengths = block.body_start.tolist(), block.body_length.tolist()
    bodies = [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    return [
        (row["topic"], body, dict(row["properties"]))
        for row, body in zip(batch.to_pylist(), bodies, strict=True)
    ]


@pytest.mark.parametrize(
    "count", [1, crc.ROWS, crc.ROWS + 1, TAGS_ROWS, TAGS_ROWS + 1, 2 * TAGS_ROWS + 3]
)
def test_crcs_and_tags_codes_are_those_of_the_whole_however_it_is_parted(count: int) -> None:
    tags = list(itertools.islice(itertools.cycle(["A", "", "ü", "B", "A"]), count))
    block = block_of([Record("T", 0, b"b%d" % n, {"TAGS": tag}) for n, tag in enumerate(tags)])
    assert np.array_equal(block.tags_codes(), [java_hash(tag) for tag in tags])
    block.verify_body_crc()
    block.data[block.body_start[-1]] ^= 1
    with pytest.raises(MalformedRecordError, match=f"record {count - 1} "):
        block.verify_body_crc()


MUTATIONS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4)


@given(st.lists(RECORDS, min_size=1, max_size=3), MUTATIONS)
@settings(max_examples=400)
def test_both_forms_judge_changed_bytes_alike(
    records: list[Record], mutations: list[tuple[int, int]]
) -> None:
    block = block_of(records)
    data = bytearray(block.data.tobytes())
    for place, value in mutations:
        data[place % len(data)] = value
    sizes = block.sizes.tolist()
    assert outcome_of_block(bytes(data), sizes) == outcome_of_single(bytes(data), sizes)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(0, 1 << 16))
def test_a_block_that_is_cut_off_is_malformed(records: list[Record], cut: int) -> None:
    block = block_of(records)
    data = block.data.tobytes()
    with pytest.raises(MalformedRecordError):
        RecordBlock.parse(data[: cut % len(data)], block.sizes)


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_random_bytes_are_malformed_or_empty(data: bytes) -> None:
    if data:
        with pytest.raises(MalformedRecordError):
            RecordBlock.parse(data)
    else:
        assert len(RecordBlock.parse(data)) == 0


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=5), st.binary(max_size=300))
@settings(max_examples=300)
def test_sizes_that_lie_are_malformed(sizes: list[int], data: bytes) -> None:
    if sizes or data:
        with pytest.raises(MalformedRecordError):
            RecordBlock.parse(data, np.array(sizes, np.int32))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": pa.array([b"x", None])}, "row 1: body"),
        ({"tags": pa.array(["a", "b\x01"])}, "row 1: TAGS"),
        ({"tags": pa.array(["a\x02", "b"])}, "row 0: TAGS"),
        ({"topic": pa.array(["T", None])}, "row 1: topic"),
        ({"topic": "t" * 40_000}, "topic"),
        ({"extra": {"UNIQ_KEY": pa.array(["ok", "x" * 40_000])}}, "row 1: properties"),
        (
            {"properties": pa.array([[], [("", "v")]], COLUMN_TYPES["properties"])},
            "row 1: property name",
        ),
        (
            {"properties": pa.array([[("n", "v")], [("m", "v\x02")]], COLUMN_TYPES["properties"])},
            "row 1: property value",
        ),
    ],
)
def test_what_no_record_can_hold_is_named_with_its_row(
    columns: dict[str, object], words: str
) -> None:
    given = {"body": pa.array([b"x", b"y"]), "topic": "T", "queue_id": 0, **columns}
    with pytest.raises(UnencodableRecordError, match=words):
        encode_block(BlockColumns(**given))

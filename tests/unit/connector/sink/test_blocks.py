"""Blocks from rows: of the right size and queue, in order, checked before the first is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.sink.blocks import ENCODED_BYTES, BlockForm
from pyspark_rocketpy.sink.routes import RowRoutes
from pyspark_rocketpy.sink.rows import Rows
from pyspark_rocketpy.transport.values import BrokerLimits
from pyspark_rocketpy.transport.write_values import SIZE_BYTES, BatchName, Block
from rocketpy_proto.record import (
    BLANK_BYTES,
    COLUMN_TYPES,
    RecordBlock,
    property_column,
    to_record_batch,
)
from tests.support.blocks import bodies_of

MIB = 1 << 20
LIMITS = BrokerLimits(4 * MIB, 32 * MIB)
KEYS_SCHEMA = pa.schema({"keys": COLUMN_TYPES["keys"]})


def rows_of(**columns: pa.Array) -> Rows:
    return Rows.of(pa.record_batch(columns), tuple(columns), 100, 3)


def routes_of(places: Sequence[tuple[str, int]]) -> RowRoutes:
    """Routes each row to its topic and queue."""
    topics = sorted({topic for topic, _ in places})
    codes = [topics.index(topic) for topic, _ in places]
    queue_ids = np.array([queue_id for _, queue_id in places])
    return RowRoutes(topics, np.array(codes), queue_ids, np.zeros(len(places), np.int64))


def blocks_of(
    rows: Rows,
    block_bytes_max: int = 2 * MIB,
    limits: BrokerLimits = LIMITS,
    places: Sequence[tuple[str, int]] | None = None,
    encoded_bytes: int = ENCODED_BYTES,
) -> list[Block]:
    form = BlockForm.within(limits, block_bytes_max, BatchName("query", 5))
    form = replace(form, encoded_bytes=encoded_bytes)
    return list(form.blocks(rows, routes_of(places or [("T", 1)] * len(rows))))


def all_bodies(blocks: Iterable[Block]) -> list[bytes]:
    return [body for block in blocks for body in bodies_of(block.records, block.record_sizes)]


@given(
    st.lists(
        st.tuples(st.sampled_from("TU"), st.integers(0, 2), st.sampled_from([0, 10, 300, 5_000])),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([1_000, 10_000]),
    st.sampled_from([1, 4_000, 1 << 20]),
)
def test_rows_of_many_queues_keep_their_order_within_each(
    rows: list[tuple[str, int, int]], block_bytes_max: int, encoded_bytes: int
) -> None:
    """Asserts the order for any limits of encoding and of blocks."""
    bodies = [b"%d" % number * (1 + size // 3) for number, (_, _, size) in enumerate(rows)]
    places = [(topic, queue_id) for topic, queue_id, _ in rows]
    rows_of_bodies = rows_of(body=pa.array(bodies))
    made = blocks_of(rows_of_bodies, block_bytes_max, LIMITS, places, encoded_bytes)
    for place in set(places):
        wanted = [body for body, one in zip(bodies, places, strict=True) if one == place]
        of_place = [block for block in made if (block.topic, block.queue_id) == place]
        assert all_bodies(of_place) == wanted
    assert len(all_bodies(made)) == len(rows)
    for block in made:
        parsed = RecordBlock.parse(
            block.records, np.frombuffer(block.record_sizes, ">i4").astype(np.int32)
        )
        parsed.verify_body_crc()
        assert parsed.single_topic() == block.topic
        assert set(parsed.header["queue_id"].tolist()) == {block.queue_id}


def test_rows_that_stand_together_make_one_block_a_queue() -> None:
    places = [("T", number % 5) for number in range(1_000)]
    made = blocks_of(rows_of(body=pa.array([b"x"] * 1_000)), places=places)
    assert sorted(block.queue_id for block in made) == list(range(5))


@given(st.lists(st.sampled_from([0, 10, 300, 5_000, 40_000]), min_size=1, max_size=40))
def test_skewed_bodies_make_blocks_within_the_limit(sizes: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    made = blocks_of(rows_of(body=pa.array(bodies, pa.binary())), 10_000)
    assert all_bodies(made) == bodies
    for block in made:
        count = len(block.record_sizes) // SIZE_BYTES
        assert count == 1 or len(block.records) + len(block.record_sizes) <= 10_000


def test_skewed_properties_make_blocks_within_the_limit() -> None:
    maps = [[("p", "x" * (9_000 if number % 10 == 0 else 1))] for number in range(100)]
    rows = rows_of(
        body=pa.array([b"x"] * 100),
        properties=pa.array(maps, pa.map_(pa.string(), pa.string())),
    )
    made = blocks_of(rows, 20_000)
    assert len(all_bodies(made)) == 100
    assert max(len(block.records) for block in made) <= 20_000


@pytest.mark.parametrize(
    "limits", [BrokerLimits(4 * MIB, 5_000), BrokerLimits(4 * MIB, 32 * MIB, 10_000)]
)
def test_blocks_never_exceed_a_request_or_half_a_segment(limits: BrokerLimits) -> None:
    made = blocks_of(rows_of(body=pa.array([bytes(1_000)] * 50)), 1 * MIB, limits)
    sizes = [len(block.records) + len(block.record_sizes) for block in made]
    assert max(sizes) <= 5_000
    assert len(made) < 25


@pytest.mark.parametrize(
    "limits", [BrokerLimits(4 * MIB, 2_000), BrokerLimits(4 * MIB, 32 * MIB, 2_000)]
)
def test_a_message_that_has_no_room_is_named(limits: BrokerLimits) -> None:
    rows = rows_of(body=pa.array([b"a", bytes(3_000)]), tags=pa.array([None, "blue"]))
    with pytest.raises(OversizeMessageError, match=r"row 101 of partition 3 \(tags 'blue'\)"):
        blocks_of(rows, limits=limits)


def test_the_largest_message_fills_a_segment_but_for_its_end() -> None:
    (alone,) = blocks_of(rows_of(body=pa.array([bytes(3_000)])))
    limits = BrokerLimits(4 * MIB, 32 * MIB, len(alone.records) + BLANK_BYTES)
    assert len(blocks_of(rows_of(body=pa.array([bytes(3_000)])), limits=limits)) == 1
    with pytest.raises(OversizeMessageError):
        blocks_of(rows_of(body=pa.array([bytes(3_001)])), limits=limits)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"tags": ["fine", "a\x02b"]}, "column tags .* row 101 .*separator"),
        ({"keys": ["fine", "a\x01b"]}, "column keys .* row 101 .*separator"),
        (
            {"keys": [["fine"], ["b", "order 17"]]},
            "column keys .* row 101 .*'order 17' has a blank",
        ),
        ({"keys": [[None, "fine"], [" "]]}, "column keys .* row 101 .*' ' has a blank"),
        ({"keys": [[], ["", None, "trailing "]]}, "column keys .* row 101 .*'trailing ' has a"),
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
        blocks_of(rows_of(body=pa.array([b"a", b"b"]), **arrays))


def test_keys_come_back_as_they_were_and_empty_ones_are_left_out() -> None:
    keys = [["a", "b"], ["", "c", None, ""], [""], [None], [], None, ["tab\there", "\u00a0"]]
    rows = rows_of(body=pa.array([b"x"] * 7), keys=pa.array(keys, pa.list_(pa.string())))
    for one in (rows, rows.part(slice(1, 7))):
        (block,) = blocks_of(one)
        found = to_record_batch(RecordBlock.parse(block.records), KEYS_SCHEMA)
        wanted = [["a", "b"], ["c"], None, None, None, None, ["tab\there", "\u00a0"]]
        assert found["keys"].to_pylist() == wanted[7 - len(one) :]
        texts = property_column(RecordBlock.parse(block.records), "KEYS").to_pylist()
        assert texts == ["a b", "c", None, None, None, None, "tab\there \u00a0"][7 - len(one) :]


def test_an_empty_key_leaves_no_blank() -> None:
    rows = rows_of(body=pa.array([b"x"]), keys=pa.array([["", "a", ""]]))
    (block,) = blocks_of(rows)
    assert property_column(RecordBlock.parse(block.records), "KEYS").to_pylist() == ["a"]


def test_keys_of_one_text_are_parted_by_blanks() -> None:
    (block,) = blocks_of(rows_of(body=pa.array([b"x"]), keys=pa.array([" a  b "])))
    found = to_record_batch(RecordBlock.parse(block.records), KEYS_SCHEMA)
    assert found["keys"].to_pylist() == [["a", "b"]]


def test_the_last_row_is_checked_before_the_first_block_is_made() -> None:
    rows = rows_of(body=pa.array([b"a", b"b", b"c"]), tags=pa.array(["fine", "fine", "a\x01b"]))
    form = replace(BlockForm.within(LIMITS, 2 * MIB, BatchName("query", 5)), encoded_bytes=1)
    with pytest.raises(ColumnError, match=r"column tags .* row 102"):
        next(form.blocks(rows, routes_of([("T", 1)] * 3)))

"""Delayed rows: split by their kind of delay, and marked as the broker reads it."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.blocks import BlockForm
from pyspark_rocketpy.sink.delays import LEVEL_MAX, delays_of, waiting_properties
from pyspark_rocketpy.sink.routes import RowRoutes
from pyspark_rocketpy.sink.rows import Rows
from pyspark_rocketpy.transport.values import BrokerLimits
from pyspark_rocketpy.transport.write_values import DELAY_TIMED, BatchName, Block
from rocketpy_proto.record import RecordBlock, property_column
from rocketpy_proto.record.properties import DELAY, NOT_COPIED_NAMES, TIMER_DELIVER_MS
from tests.support.blocks import bodies_of

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, timezone.utc)
AT_MS = int(AT.timestamp() * 1_000) + 1
TIMES = pa.timestamp("us", "UTC")


def rows_of(**columns: pa.Array) -> Rows:
    return Rows.of(pa.record_batch(columns), tuple(columns), 0, 3)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_d01_a_level_of_any_integer_type_is_told(kind: pa.DataType) -> None:
    rows = rows_of(delayLevel=pa.array([3, 0, None, 18, 120], kind))
    assert delays_of(rows).tolist() == [3, 0, 0, 18, 120]
    assert waiting_properties(rows)[DELAY].to_pylist() == ["3", None, None, "18", "120"]


def test_d01_levels_beyond_all_are_one() -> None:
    rows = rows_of(delayLevel=pa.array([254, 255, 1 << 40]))
    assert delays_of(rows).tolist() == [LEVEL_MAX] * 3


def test_d02_a_time_is_rounded_up_to_the_millisecond_and_never_negative() -> None:
    before = datetime(1900, 1, 1, tzinfo=timezone.utc)
    rows = rows_of(deliverAt=pa.array([AT, None, before], TIMES))
    assert delays_of(rows).tolist() == [DELAY_TIMED, 0, DELAY_TIMED]
    assert waiting_properties(rows)[TIMER_DELIVER_MS].to_pylist() == [str(AT_MS), None, "0"]


def microseconds(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(TIMES)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_d01_the_largest_level_of_a_type_is_the_highest(kind: pa.DataType) -> None:
    largest = (1 << (kind.bit_width - 1)) - 1
    rows = rows_of(delayLevel=pa.array([largest], kind))
    assert delays_of(rows).tolist() == [min(largest, LEVEL_MAX)]
    assert waiting_properties(rows)[DELAY].to_pylist() == [str(min(largest, LEVEL_MAX))]
    with pytest.raises(ColumnError, match=rf"delayLevel is {-largest - 1} in row 1 of partition 3"):
        delays_of(rows_of(delayLevel=pa.array([0, -largest - 1], kind)))


def test_d02_times_are_exact_up_to_the_last_one_that_is_accepted() -> None:
    last = 253_402_300_799_999_999
    times = microseconds(-(1 << 63), -1, 0, 1, 1_000, 1_001, last)
    rows = rows_of(deliverAt=times)
    assert delays_of(rows).tolist() == [DELAY_TIMED] * 7
    found = waiting_properties(rows)[TIMER_DELIVER_MS].to_pylist()
    assert found == ["0", "0", "0", "1", "1", "2", str((last + 1) // 1_000)]


@pytest.mark.parametrize("beyond", [253_402_300_800_000_000, (1 << 63) - 1_000, (1 << 63) - 1])
def test_d02_a_time_that_no_calendar_holds_is_refused_by_its_row(beyond: int) -> None:
    rows = rows_of(deliverAt=microseconds(None, 5, beyond))
    words = rf"column deliverAt is {beyond} microseconds since 1970 in row 2 of partition 3"
    with pytest.raises(ColumnError, match=words):
        delays_of(rows)


def test_a_negative_level_is_refused_by_its_row() -> None:
    with pytest.raises(ColumnError, match=r"delayLevel is -2 in row 1 of partition 3"):
        delays_of(rows_of(delayLevel=pa.array([1, -2])))


def test_a_row_cannot_have_a_level_and_a_time() -> None:
    rows = rows_of(delayLevel=pa.array([1, 0, 2]), deliverAt=pa.array([None, AT, AT], TIMES))
    with pytest.raises(ColumnError, match=r"both set in row 2 of partition 3"):
        delays_of(rows)


def blocks_of(rows: Rows) -> list[Block]:
    count = len(rows)
    zeros = pa.array([0] * count).to_numpy()
    form = BlockForm.within(BrokerLimits(1 << 20, 1 << 20), 1 << 20, BatchName("query", 5))
    return list(form.blocks(rows, RowRoutes(["T"], zeros, zeros, delays_of(rows))))


def column_of(block: Block, name: str) -> list[str | None]:
    values: list[str | None] = property_column(RecordBlock.parse(block.records), name).to_pylist()
    return values


def test_d02_rows_that_wait_differently_go_in_blocks_of_their_own() -> None:
    bodies = [b"a", b"b", b"c", b"d", b"e"]
    rows = rows_of(
        body=pa.array(bodies),
        delayLevel=pa.array([2, None, 2, 1, None]),
        deliverAt=pa.array([None, AT, None, None, None], TIMES),
    )
    blocks = {block.delay: block for block in blocks_of(rows)}
    found = {delay: bodies_of(block.records, block.record_sizes) for delay, block in blocks.items()}
    assert found == {0: [b"e"], 1: [b"d"], 2: [b"a", b"c"], DELAY_TIMED: [b"b"]}
    assert column_of(blocks[2], DELAY) == ["2", "2"]
    assert column_of(blocks[DELAY_TIMED], TIMER_DELIVER_MS) == [str(AT_MS)]
    assert column_of(blocks[0], DELAY) == [None]


def test_entries_of_a_copied_message_that_brokers_set_are_left_out() -> None:
    entries = [[("a", "1"), *((name, "3") for name in sorted(NOT_COPIED_NAMES))], [("b", "2")]]
    properties = pa.array(entries, pa.map_(pa.string(), pa.string()))
    (block,) = blocks_of(rows_of(body=pa.array([b"x", b"y"]), properties=properties))
    assert (column_of(block, "a"), column_of(block, "b")) == (["1", None], [None, "2"])
    for name in NOT_COPIED_NAMES:
        assert column_of(block, name) == [None, None]


def test_a_copied_row_waits_by_its_own_column_alone() -> None:
    entries = [[("TIMER_OUT_MS", "1"), ("DELAY", "9"), ("REAL_TOPIC", "old")]]
    properties = pa.array(entries, pa.map_(pa.string(), pa.string()))
    rows = rows_of(body=pa.array([b"x"]), properties=properties, deliverAt=pa.array([AT], TIMES))
    (block,) = blocks_of(rows)
    assert column_of(block, TIMER_DELIVER_MS) == [str(AT_MS)]
    for name in ("TIMER_OUT_MS", DELAY, "REAL_TOPIC"):
        assert column_of(block, name) == [None]

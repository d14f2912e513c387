"""Accumulation of small blocks: complete, in order, within the budget, the fullest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.sink.block_accumulator import (
    KEPT_SHARE,
    OVERHEAD_BYTES,
    BlockAccumulator,
    packed,
)
from pyspark_rocketpy.transport.write_values import Block
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES

BIG = 1 << 30


def block(queue_id: int, records: bytes, topic: str = "T") -> Block:
    """Returns a block of records of one byte with sizes of one byte; sizes are in lower case."""
    return Block(topic, queue_id, records.upper(), records.lower())


def size_of(one: Block) -> int:
    return len(one.records) + len(one.record_sizes)


def content(blocks: Iterable[Block]) -> dict[tuple[str, int], tuple[bytes, bytes]]:
    """Returns the records of each queue, and their sizes."""
    queues: dict[tuple[str, int], tuple[bytes, bytes]] = {}
    for one in blocks:
        records, sizes = queues.get((one.topic, one.queue_id), (b"", b""))
        queues[one.topic, one.queue_id] = records + one.records, sizes + one.record_sizes
    return queues


small_blocks = st.lists(
    st.builds(
        block,
        st.integers(0, 3),
        st.binary(min_size=1, max_size=60).map(lambda octets: octets.hex().encode()),
        st.sampled_from(["T", "U"]),
    ),
    max_size=60,
)


@given(small_blocks, st.integers(1, 300), st.integers(0, 3_000))
def test_all_records_leave_once_and_in_their_order(
    blocks: list[Block], block_bytes_max: int, waiting_bytes_max: int
) -> None:
    gathering = BlockAccumulator(waiting_bytes_max)
    left = [*gathering.joined(blocks, block_bytes_max), *gathering.rest()]
    assert content(left) == content(blocks)
    assert list(gathering.rest()) == []
    largest = max((size_of(one) for one in blocks), default=0)
    assert all(size_of(one) <= max(block_bytes_max, largest) for one in left)


@given(small_blocks, st.integers(1, 300), st.integers(0, 3_000))
def test_no_more_waits_than_the_budget_allows(
    blocks: list[Block], block_bytes_max: int, waiting_bytes_max: int
) -> None:
    gathering, came, went = BlockAccumulator(waiting_bytes_max), 0, 0
    for one in blocks:
        came += size_of(one)
        went += sum(size_of(left) for left in gathering.joined([one], block_bytes_max))
        assert came - went <= waiting_bytes_max


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=40))
def test_blocks_are_as_large_as_they_may_be(bodies: list[bytes]) -> None:
    """Asserts that no two adjacent blocks of a queue would fit into one, except the last."""
    blocks = [block(0, octets.hex().encode()) for octets in bodies]
    gathering = BlockAccumulator(BIG)
    left = [*gathering.joined(blocks, 200), *gathering.rest()]
    assert all(size_of(one) > 200 - 80 for one in left[:-1])


def test_what_is_full_leaves_at_once() -> None:
    gathering = BlockAccumulator(BIG)
    left = list(gathering.joined([block(0, b"a" * 30), block(1, b"b" * 20)], 100))
    assert left == [block(0, b"a" * 30)]


def test_the_fullest_queues_leave_first_and_make_room_for_more() -> None:
    sizes = {0: 100, 1: 400, 2: 200, 3: 300}
    blocks = [block(queue_id, b"x" * (size // 2)) for queue_id, size in sizes.items()]
    total = sum(sizes.values()) + OVERHEAD_BYTES * len(sizes)
    gathering = BlockAccumulator(total - 1)
    left = list(gathering.joined(blocks, BIG))
    assert [one.queue_id for one in left] == [1]
    assert total - 400 - OVERHEAD_BYTES <= (total - 1) * KEPT_SHARE
    assert sorted(one.queue_id for one in gathering.rest()) == [0, 2, 3]


def test_blocks_are_taken_as_they_come() -> None:
    """Asserts that finished blocks leave before all blocks have arrived."""

    def endless() -> Iterator[Block]:
        while True:
            yield block(0, b"a" * 60)

    assert next(BlockAccumulator(BIG).joined(endless(), 100)) == block(0, b"a" * 60)


@given(small_blocks, st.integers(1, 300))
def test_packing_keeps_all_records_in_their_order(blocks: list[Block], bytes_max: int) -> None:
    """Asserts that a packed block has consecutive blocks, each queue once, and keeps the limit."""
    left = list(packed(blocks, bytes_max))
    count = 0
    for one in left:
        number = 0
        while size_of(joined_up(blocks[count : count + number])) < size_of(one):
            number += 1
        taken = blocks[count : count + number]
        assert joined_up(taken) == replace(one, queue_id=taken[0].queue_id)
        assert (one.queue_id == OWN_QUEUES) == (number > 1)
        assert len({each.queue_id for each in taken}) == number
        assert len({each.topic for each in taken}) == 1
        assert number == 1 or size_of(one) <= bytes_max
        count += number
    assert count == len(blocks)


def joined_up(blocks: list[Block]) -> Block:
    """Joins blocks back to back, with the first one's topic and queue."""
    records = b"".join(one.records for one in blocks)
    sizes = b"".join(one.record_sizes for one in blocks)
    first = blocks[0] if blocks else block(0, b"")
    return Block(first.topic, first.queue_id, sizes, records)


def test_a_packed_block_has_no_more_queues_than_a_broker_takes() -> None:
    blocks = [block(number, b"a") for number in range(BLOCK_QUEUES_MAX + 1)]
    left = list(packed(blocks, BIG))
    assert [one.queue_id for one in left] == [OWN_QUEUES, BLOCK_QUEUES_MAX]


def test_messages_of_one_delay_are_packed_alone() -> None:
    waiting = [replace(block(number, b"a"), delay=number // 2) for number in range(4)]
    left = list(packed(waiting, BIG))
    assert [(one.queue_id, one.delay) for one in left] == [(OWN_QUEUES, 0), (OWN_QUEUES, 1)]


@pytest.mark.parametrize("count", [1, 100])
def test_the_overhead_of_small_blocks_counts(count: int) -> None:
    gathering = BlockAccumulator(10 * OVERHEAD_BYTES)
    left = list(gathering.joined([block(number, b"a") for number in range(count)], BIG))
    assert len(left) >= count - 10

"""Accumulation of small blocks into large ones, by queue.

A block is sent when another small block of the last one's size would not fit into it. Above the
budget of waiting bytes, the queues with most bytes are sent, since they give the largest blocks.
Blocks that are sent together are packed into blocks of several queues. A queue's records keep their
order. Waiting blocks are lost with their task, which Spark then runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark_rocketpy.transport.write_values import Block
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES

# Bytes of a small block besides its records and their sizes.
OVERHEAD_BYTES = 200
# Share of the budget that stays waiting, so that the queues are not sorted for every block.
KEPT_SHARE = 7 / 8


@dataclass(slots=True)
class _Queue:
    """The waiting blocks of one queue."""

    blocks: list[Block] = field(default_factory=list)
    size_bytes: int = 0


class BlockAccumulator:
    """The waiting blocks of one task, by queue."""

    def __init__(self, waiting_bytes_max: int) -> None:
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._queues: dict[tuple[str, int, int], _Queue] = {}

    def joined(self, blocks: Iterable[Block], block_bytes_max: int) -> Iterator[Block]:
        """Yields the blocks to send as `blocks` are added.

        None is larger than `block_bytes_max`, unless a given block is. The loop is over blocks,
        some 2 microseconds each.
        """
        for block in blocks:
            key = block.topic, block.queue_id, block.delay
            size_bytes = len(block.records) + len(block.record_sizes)
            queue = self._queues.get(key)
            if queue is not None and queue.size_bytes + size_bytes > block_bytes_max:
                yield self._leave(key)
                queue = None
            if queue is None:
                queue = self._queues[key] = _Queue()
            queue.blocks.append(block)
            queue.size_bytes += size_bytes
            self._waiting_bytes += size_bytes + OVERHEAD_BYTES
            if queue.size_bytes + size_bytes > block_bytes_max:
                yield self._leave(key)
            elif self._waiting_bytes > self._waiting_bytes_max:
                yield from self._take_largest()

    def rest(self) -> Iterator[Block]:
        """Yields all waiting blocks."""
        yield from self._all_leave(list(self._queues))

    def _take_largest(self) -> Iterator[Block]:
        keys = sorted(self._queues, key=lambda key: self._queues[key].size_bytes)
        kept_bytes, left_bytes, count = self._waiting_bytes_max * KEPT_SHARE, 0, 0
        while self._waiting_bytes - left_bytes > kept_bytes:
            count += 1
            left_bytes += self._taken_bytes(self._queues[keys[-count]])
        yield from self._all_leave(keys[-count:])

    def _all_leave(self, keys: list[tuple[str, int, int]]) -> Iterator[Block]:
        """Yields the blocks of `keys`; blocks that can be packed are adjacent."""
        for key in sorted(keys, key=lambda key: (key[0], key[2], key[1])):
            yield self._leave(key)

    @staticmethod
    def _taken_bytes(queue: _Queue) -> int:
        return queue.size_bytes + OVERHEAD_BYTES * len(queue.blocks)

    def _leave(self, key: tuple[str, int, int]) -> Block:
        queue = self._queues.pop(key)
        self._waiting_bytes -= self._taken_bytes(queue)
        return _joined(queue.blocks, key[1])


def packed(blocks: Iterable[Block], block_bytes_max: int) -> Iterator[Block]:
    """Yields adjacent blocks of one topic and delay as one block of several queues, if it fits."""
    together: dict[int, Block] = {}
    bytes_ = 0
    for block in blocks:
        size_bytes = len(block.records) + len(block.record_sizes)
        first = next(iter(together.values()), block)
        is_alike = (first.topic, first.delay) == (block.topic, block.delay)
        fits = bytes_ + size_bytes <= block_bytes_max and len(together) < BLOCK_QUEUES_MAX
        if together and not (is_alike and fits and block.queue_id not in together):
            yield _packed(together)
            together, bytes_ = {}, 0
        together[block.queue_id] = block
        bytes_ += size_bytes
    if together:
        yield _packed(together)


def _packed(blocks: dict[int, Block]) -> Block:
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    return _joined(list(blocks.values()), OWN_QUEUES)


def _joined(blocks: list[Block], queue_id: int) -> Block:
    return Block(
        topic=blocks[0].topic,
        queue_id=queue_id,
        record_sizes=b"".join(block.record_sizes for block in blocks),
        records=b"".join(block.records for block in blocks),
        delay=blocks[0].delay,
        is_movable=blocks[0].is_movable,
    )

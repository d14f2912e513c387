"""Small blocks become large ones: those of a queue wait for each other, within a budget of bytes.

A block leaves when another one like the last would not fit into it. When more waits than the
budget allows, the fullest queues leave first, since theirs are the largest blocks. A queue's
records keep their order. What waits is lost with its task, which Spark then runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark_rocketpy.transport.values import Block

# What a small block takes beside its records and their sizes.
OVERHEAD_BYTES = 200
# What is left of a budget that was used up, so that the queues are not sorted for every block.
KEPT_SHARE = 7 / 8


@dataclass(slots=True)
class _Queue:
    """What waits of one queue."""

    blocks: list[Block] = field(default_factory=list)
    size_bytes: int = 0


class Gathering:
    """The blocks of one task that wait, by queue."""

    def __init__(self, waiting_bytes_max: int) -> None:
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._queues: dict[tuple[str, int, int], _Queue] = {}

    def joined(self, blocks: Iterable[Block], block_bytes_max: int) -> Iterator[Block]:
        """What leaves as `blocks` come; none is larger than `block_bytes_max` but for theirs.

        The loop is over blocks, some 2 microseconds each.
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
                yield from self._relieved()

    def rest(self) -> Iterator[Block]:
        """All that waits."""
        for key in list(self._queues):
            yield self._leave(key)

    def _relieved(self) -> Iterator[Block]:
        keys = sorted(self._queues, key=lambda key: self._queues[key].size_bytes)
        while self._waiting_bytes > self._waiting_bytes_max * KEPT_SHARE:
            yield self._leave(keys.pop())

    def _leave(self, key: tuple[str, int, int]) -> Block:
        queue = self._queues.pop(key)
        self._waiting_bytes -= queue.size_bytes + OVERHEAD_BYTES * len(queue.blocks)
        return Block(
            topic=key[0],
            queue_id=key[1],
            record_sizes=b"".join(block.record_sizes for block in queue.blocks),
            records=b"".join(block.records for block in queue.blocks),
            delay=key[2],
        )

"""Filtered pulls in process: the rate of a queue scan, and the delay of other work.

Messages of 100 bytes with four properties; about one in a hundred matches. The rate is of one core:
Arrow has one thread, and all other work is the event loop's. The longest scheduler slot is that of
the most expensive expression, with the most permitted searches in large properties. It is the
median of some rounds, since the system may stop any process for longer.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from benchmarks import data
from benchmarks.harness import ROUNDS, Result, median_seconds
from benchmarks.storage.bench_store import open_store
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.filters.parser import TERMS_MAX
from rocketpy_broker.services.filters.service import FilterService, FilterText
from rocketpy_broker.services.pull.checks import NO_END
from rocketpy_broker.services.pull.matching_reader import MatchingReader
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey, ReadLimits
from rocketpy_proto.record import BlockColumns, RecordBlock, encode_block, java_hash

BLOCK_MESSAGES, BLOCKS = 5_000, 100
MATCHING = 100
RESPONSE_BYTES = 512 << 10
TAGS_PER_SECOND_MIN, SQL92_PER_SECOND_MIN = 2.0, 0.3
TURN_MS_MAX = 20
LARGE_TEXT = "1" * 8_000
EXPRESSIONS = {
    "TAGS = 'Tag7'": "a string",
    "amount > 98": "a whole number",
    "amount > 98.5": "a decimal number",
    "KEYS ENDSWITH '00' OR TAGS IN ('x', 'y') AND amount BETWEEN 5 AND 10": "four conditions",
}
# Each term searches all of a large property, and finds nothing.
DEAREST = " OR ".join(f"large CONTAINS '1{number}'" for number in range(2, TERMS_MAX))


def _large_columns() -> BlockColumns:
    """Returns few messages with nearly the most permitted bytes of properties."""
    columns = data.columns(100, 100)
    return replace(columns, extra={"large": pa.array([LARGE_TEXT] * 100)})


def _columns() -> BlockColumns:
    columns = data.columns(BLOCK_MESSAGES, 100)
    numbers = [number % MATCHING for number in range(BLOCK_MESSAGES)]
    amounts = pa.array([str(number) for number in numbers])
    return replace(
        columns,
        tags=pa.array([f"Tag{number}" for number in numbers]),
        extra={**columns.extra, "amount": amounts},
    )


class Pulls:
    """A store with queues of such messages, and pulls from them."""

    def __init__(self, folder: Path) -> None:
        self.store: MessageStore = open_store(folder)
        self.filters = FilterService()
        self._reader = MatchingReader(self.store)
        self._turn_ms_max = 0.0

    def fill(self, columns: BlockColumns, queue_id: int, blocks: int) -> None:
        encoded = encode_block(columns)
        for _ in range(blocks):
            block = RecordBlock.parse(bytearray(encoded.data), encoded.sizes)
            self.store.append(QueueKey(data.TOPIC, queue_id), block)
        self.store.dispatch()

    async def pull(self, text: FilterText, queue_id: int) -> int:
        """Scans a queue; returns the number of matching messages."""
        queue = QueueKey(data.TOPIC, queue_id)
        wanted = self.filters.filter_of(text)
        limits = ReadLimits.of_bytes(RESPONSE_BYTES, wanted.tags_codes)
        offset = count = 0
        while offset < self.store.range_of(queue).max_offset:
            result = await self._reader.get_message(queue, offset, NO_END, limits, wanted.sql92)
            offset, count = result.next_offset, count + len(result.sizes)
            if len(result.sizes):
                await take_slot("pull")
        return count

    async def longest_turn_ms(self, text: FilterText, queue_id: int) -> float:
        """Returns the longest wait of a concurrent task that always wants the next slot."""
        self._turn_ms_max = 0.0
        watching = asyncio.ensure_future(self._turns())
        await asyncio.sleep(0)
        try:
            await self.pull(text, queue_id)
        finally:
            watching.cancel()
        return self._turn_ms_max

    async def _turns(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self._turn_ms_max = max(self._turn_ms_max, (now - last) * 1000)
            last = now


def _rate(pulls: Pulls, text: FilterText) -> float:
    """Returns the scanned messages a second, in millions."""
    seconds = median_seconds(lambda: asyncio.run(pulls.pull(text, 0)))
    return BLOCKS * BLOCK_MESSAGES / seconds / 1e6


def run() -> list[Result]:
    """Returns all figures, in a process that is set as the broker's."""
    process_tuning.keep_freed_memory()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        pulls = Pulls(Path(name))
        pulls.fill(_columns(), 0, BLOCKS)
        pulls.fill(_large_columns(), 1, 4)
        tags = FilterText(tags_codes=[java_hash("Tag7")])
        results = [
            Result("filter by tags", _rate(pulls, tags), "M msgs/s", TAGS_PER_SECOND_MIN),
            *(
                Result(
                    f"filter by SQL92, {what}",
                    _rate(pulls, FilterText("SQL92", expression)),
                    "M msgs/s",
                    SQL92_PER_SECOND_MIN,
                    detail=f"`{expression}`",
                )
                for expression, what in EXPRESSIONS.items()
            ),
        ]
        dearest = FilterText("SQL92", DEAREST)
        turns = [asyncio.run(pulls.longest_turn_ms(dearest, 1)) for _ in range(ROUNDS)]
        turn = Result(
            "longest turn of a filtered pull",
            statistics.median(turns),
            "ms",
            TURN_MS_MAX,
            at_most=True,
            detail=f"{TERMS_MAX - 2} searches of properties of {len(LARGE_TEXT):,} bytes",
        )
        pulls.store.close()
    return [*results, turn]

"""A growing store: the costs of appends and starts at ten million messages.

One store is filled. On the way the costs of appending and of pulling a fixed number of messages are
measured, and drawn in `docs/growth.png`. Then it is opened again, after a clean stop and as after a
crash, where every record is checked and dispatched again. Costs are user time of the processor.
Page cache hot; nothing is flushed.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import data
from benchmarks.harness import Result, seconds_of
from benchmarks.report import growth_plot
from benchmarks.storage.bench_store import open_service, open_store
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits

BODY_BYTES = 100
BLOCK_RECORDS = 2_500
QUEUES = 4
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
MEASURED_BLOCKS = 40
PULLED = 2_500
PULLS = 200
ROUNDS = 7
NO_END = 1 << 60
PULL_BYTES = 512 << 10
# The most expensive size over the cheapest one.
FLATNESS_MAX = 1.5
CLEAN_START_SECONDS_MAX = 1.0
RECOVERED_PER_SECOND_MIN = 0.5
PLOT = Path("docs/growth.png")


@dataclass(slots=True)
class Growth:
    """A growing store; costs in microseconds a message, by stored messages."""

    store: MessageStore
    service: SendService
    block: data.Block
    count: int = 0
    append_us: dict[int, float] = field(default_factory=dict)
    pull_us: dict[int, float] = field(default_factory=dict)

    def append(self, blocks: int) -> None:
        for number in range(blocks):
            self.service.append_now(
                data.TOPIC, number % QUEUES, self.block.records, self.block.record_sizes
            )
        self.store.dispatch()
        self.count += blocks * BLOCK_RECORDS

    def pull(self) -> None:
        """Reads the first messages of one queue, always the same number."""
        queue = QueueKey(data.TOPIC, 0)
        offset = 0
        while offset < PULLED:
            result = self.store.get_message(queue, offset, NO_END, ReadLimits.of_bytes(PULL_BYTES))
            if result.status is not GetMessageStatus.FOUND:
                return
            offset = result.next_offset

    def pull_often(self) -> None:
        for _ in range(PULLS):
            self.pull()

    def measure(self) -> None:
        """Measures the costs at this size; its appends make the store a little larger."""
        size = self.count
        messages = MEASURED_BLOCKS * BLOCK_RECORDS
        self.pull_us[size] = _least(self.pull_often) / PULLED / PULLS * 1e6
        self.append_us[size] = _least(lambda: self.append(MEASURED_BLOCKS)) / messages * 1e6


def _least(work: Callable[[], object]) -> float:
    """Returns the least user time of some rounds, in seconds.

    Virtual machines provide fresh pages at two speeds, at random; that is the system's time.
    """
    return min(_user_seconds(work) for _ in range(ROUNDS))


def _user_seconds(work: Callable[[], object]) -> float:
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin


def run() -> Iterator[Result]:
    """Yields all figures, in a process that is set as the broker's."""
    process_tuning.keep_freed_memory()
    block = data.block(BLOCK_RECORDS, BODY_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name) / "store"
        growth = Growth(*open_service(folder), block)
        growth.append(MEASURED_BLOCKS)
        growth.store.close()
        # Costs during the first creation of files would be higher.
        growth = Growth(*open_service(Path(name) / "grown"), block)
        for size in SIZES:
            growth.append((size - growth.count) // BLOCK_RECORDS)
            growth.measure()
        growth.store.close()
        growth_plot(PLOT, growth.append_us, growth.pull_us)
        yield _flatness("append", growth.append_us)
        yield _flatness("pull", growth.pull_us)
        yield from run_starts(Path(name) / "grown", growth.count)


def _flatness(what: str, costs_us: dict[int, float]) -> Result:
    value = max(costs_us.values()) / min(costs_us.values())
    first, last = costs_us[min(costs_us)], costs_us[max(costs_us)]
    sizes = f"{SIZES[0]:,} to {SIZES[-1]:,} messages"
    detail = f"{first:.2f} to {last:.2f} microseconds of user time, {sizes}"
    name = f"{what}: dearest size / cheapest"
    return Result(name, value, "ratio", FLATNESS_MAX, at_most=True, detail=detail)


def run_starts(folder: Path, count: int) -> Iterator[Result]:
    """Yields the start after a clean stop, and after a crash without any recovery files."""
    clean = statistics.median(_seconds_to_open(folder) for _ in range(ROUNDS))
    detail = f"{count:,} messages"
    name = "start after a clean stop"
    yield Result(name, clean, "s", CLEAN_START_SECONDS_MAX, at_most=True, detail=detail)
    for path in ("rocketpy/manifest.json", "rocketpy/flushed"):
        (folder / path).unlink()
    (folder / "abort").touch()
    seconds = _seconds_to_open(folder)
    detail = f"{count:,} records in {seconds:.1f} s"
    yield Result(
        "recovery after a crash",
        count / seconds / 1e6,
        "M records/s",
        RECOVERED_PER_SECOND_MIN,
        detail=detail,
    )


def _seconds_to_open(folder: Path) -> float:
    store = open_store(folder, is_opened=False)
    seconds = seconds_of(store.open)
    store.close()
    return seconds

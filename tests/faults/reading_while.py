"""A program that reads a store while it is written, rolled, cleaned, and truncated.

One thread uses the store, as in the broker. Reads return views of mapped files; other threads check
these again and again, long after a segment may have been removed. More threads flush and
preallocate segments. The program ends with counts in JSON, or with an error; a signal would end it,
too.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rocketpy_broker.store.log.flush import FlushPlan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, ReadLimits
from rocketpy_proto.record import decode_record
from tests.faults.images import bodies_in, send
from tests.support.store.messages import NO_END, QUEUE, remove_oldest_segment
from tests.support.store.stores import SMALL_INDEX, store_in

CHECKERS = 3
HELD_MAX = 64
SEGMENT_BYTES = 16 << 10
SEGMENTS_MAX = 6
ROUNDS_PER_CRASH = 400
REMOVED = {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.MESSAGE_WAS_REMOVING}


def body_at(offset: int) -> bytes:
    """Returns the body of the record at a queue offset."""
    return b"%d:" % offset * (1 + offset % 60)


@dataclass(frozen=True)
class Held:
    """Records that were read at `offset`, and are still checked."""

    offset: int
    parts: list[memoryview | pa.Buffer]
    sizes: list[int]

    def check(self) -> None:
        data = b"".join(bytes(part) for part in self.parts)
        bodies = bodies_in(data, self.sizes, QUEUE, self.offset)
        assert bodies == [body_at(self.offset + number) for number in range(len(bodies))]


class Checkers:
    """Threads that check read records, in no order."""

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._held: deque[Held] = deque(maxlen=HELD_MAX)
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(CHECKERS)
        self._running = [self._pool.submit(self._run, seed + n) for n in range(CHECKERS)]

    def take(self, held: Held) -> None:
        held.check()
        self._held.append(held)
        for running in self._running:
            if running.done():
                running.result()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stopped.wait(0.001):
            try:
                held = chance.choice(self._held)
            except IndexError:
                continue
            held.check()
            self.count += 1

    def stop(self) -> None:
        self._stopped.set()
        for running in self._running:
            running.result()
        self._pool.shutdown()


class Program:
    """The thread that uses the store."""

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        self._folder = folder
        self._rounds = rounds
        self._chance = random.Random(seed)
        self._checkers = Checkers(seed)
        self._helper = ThreadPoolExecutor(1)
        self._counts: Counter[str] = Counter()
        self._store = self._opened()
        self._flushing: tuple[FlushPlan, Future[None]] | None = None
        self._preallocating: Future[None] | None = None

    def _opened(self) -> MessageStore:
        # Half of the stores compare all reads with their checksums.
        ratio = self._chance.choice([0.0, 0.4])
        store = store_in(
            self._folder, segment_bytes=SEGMENT_BYTES, memory_ratio=ratio, **SMALL_INDEX
        )
        store.open()
        return store

    def run(self) -> dict[str, int]:
        for number in range(self._rounds):
            self._append()
            self._flush()
            self._clean()
            for _ in range(3):
                self._read()
            if number % ROUNDS_PER_CRASH == ROUNDS_PER_CRASH - 1:
                self._crash()
        self._checkers.stop()
        self._finish_flush()
        self._store.close()
        self._helper.shutdown()
        return {**self._counts, "checked": self._checkers.count}

    def _append(self) -> None:
        first = self._store.next_offset(QUEUE)
        count = self._chance.randint(1, 8)
        end = self._store._log.files.end
        send(self._store, [body_at(first + number) for number in range(count)])
        self._counts["rolled"] += self._store._log.files.end > end
        if self._preallocating is None or self._preallocating.done():
            self._preallocating = self._helper.submit(self._store.preallocate)

    def _flush(self) -> None:
        if self._flushing is None:
            plan = self._store.plan_flush()
            self._flushing = plan, self._helper.submit(plan.run)
        elif self._flushing[1].done():
            self._finish_flush()

    def _finish_flush(self) -> None:
        if self._flushing is not None:
            plan, running = self._flushing
            running.result()
            self._store.flushed(plan)
            self._flushing = None

    def _clean(self) -> None:
        files = self._store._log.files
        safe_end = min(self._store.flushed_end, self._store.positions().dispatched_end)
        if len(files.segments) > SEGMENTS_MAX and files.segments[0].end <= safe_end:
            remove_oldest_segment(self._store)
            self._counts["cleaned"] += 1

    def _read(self) -> None:
        bounds = self._store.range_of(QUEUE)
        offset = max(self._chance.randint(bounds.min_offset - 40, bounds.max_offset + 2), 0)
        limits = ReadLimits.of_bytes(self._chance.choice([1, 2000, 1 << 20]))
        result = self._store.get_message(QUEUE, offset, NO_END, limits)
        self._counts[result.status.name] += 1
        if result.status is GetMessageStatus.FOUND:
            assert bounds.min_offset <= offset < bounds.max_offset
            self._checkers.take(Held(offset, result.parts, result.sizes.tolist()))
        elif result.status in REMOVED:
            assert offset < bounds.min_offset
            assert result.next_offset == bounds.min_offset
        else:
            assert offset >= bounds.max_offset
        key = body_at(max(offset, bounds.min_offset)).decode()
        for view in self._store.messages.by_key(QUEUE.topic, key, 0, NO_END, 8):
            record = decode_record(view).record
            self._checkers.take(Held(record.queue_offset, [view], [len(view)]))

    def _crash(self) -> None:
        """Adds half a record and releases the store; the next start truncates mapped segments."""
        if self._preallocating is not None:
            self._preallocating.result()
        self._finish_flush()
        end = self._store._log.end
        segment = self._store._log.files.find(end)
        self._store._release()
        if segment is not None:
            with segment.path.open("rb+") as file:
                file.seek(end - segment.base)
                file.write(b"torn"[: segment.end - end])
        self._store = self._opened()
        assert self._store._log.end == end
        self._counts["crashed"] += 1


if __name__ == "__main__":
    found = Program(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).run()
    sys.stdout.write(json.dumps(found))

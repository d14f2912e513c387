"""The timer messages that are pending: slots by time, in packed integers.

A slot has the messages that are due within some time, one second unless delays may be longer than
three days. Of each message only its due time within the slot and its queue offset are kept, eight
bytes; a slot takes some 200 bytes more, and there are at most 260,000, whatever the longest delay.
Two million messages take 16 to 80 MB. A slot is sorted in runs, as they fill and when its time has
come, so that nothing takes longer than some milliseconds. Nothing here is an object that Python's
garbage collector would have to visit.

A slot also knows which of its messages are void: those that were cancelled, and older copies of
those that were rolled. Like RocketMQ's delete units, such marks count within their slot only, and
are held against the messages' keys when these are due. In RocketMQ a cancelled key is void also for
messages that are sent behind that; here it is for those that were there, and their rolled copies.
Lives in memory only; a start reads it from the timer queue again.
"""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

SECOND_MS = 1_000
SLOTS_MAX = 1 << 18
OFFSET_BITS = 40
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
# Queue offsets whose pending messages are counted together.
BUCKET_BITS = 10
# A run of a slot's messages is sorted when it has so many.
RUN_COUNT = 1 << 16
_NOT_COUNTED = -1
_EMPTY = np.empty(0, np.int64)


def key_hash(out_ms: int, key: str) -> int:
    """Stands for a key among the messages that get out at `out_ms`."""
    octets = f"{out_ms}\0{key}".encode(errors="replace")
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class Voids:
    """Which messages of a slot are void: for a key's hash those below a queue offset.

    Of the `cancelled` ones, so are copies that RocketMQ has rolled behind the cancellation.
    """

    below: dict[int, int]
    cancelled: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.below)

    def has(self, hashed: int, offset: int, *, is_rolled: bool) -> bool:
        """Whether a message is void by this hash of its key."""
        return offset < self.below.get(hashed, -1) or (is_rolled and hashed in self.cancelled)


NOTHING_VOID = Voids({}, frozenset())


@dataclass(frozen=True, slots=True)
class Due:
    """Messages that are due, in their order: n queue offsets and n due times in ms."""

    offsets: NDArray[np.int64]
    due_ms: NDArray[np.int64]
    voids: Voids


class PendingMessages:
    """All that is pending: nothing below `low_offset`, most of it due within `delay_ms_max`."""

    def __init__(self, delay_ms_max: int, low_offset: int = 0) -> None:
        seconds = -(-delay_ms_max // (SLOTS_MAX * SECOND_MS))
        self._slot_ms = max(seconds, 1) * SECOND_MS
        # By slot: packed messages as they came, sorted runs of them, and marks. A mark has three
        # numbers: hash of a key, queue offset below which it voids messages, and its own queue
        # offset where that counts as pending.
        self._fresh: dict[int, bytearray] = {}
        self._runs: dict[int, list[NDArray[np.int64]]] = {}
        self._marks: dict[int, array[int]] = {}
        self._heap: list[int] = []
        self._counts: dict[int, int] = {}
        self._low_bucket = low_offset >> BUCKET_BITS
        self._count = 0
        self._void: tuple[int, Voids] | None = None

    def __len__(self) -> int:
        return self._count

    # --- Coming in ---

    def add(self, due_ms: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Add n messages. Takes one step for each distinct slot."""
        numbers, within = np.divmod(due_ms - 1, self._slot_ms)
        packed = within << OFFSET_BITS | offsets
        order = np.argsort(numbers, kind="stable")
        numbers, packed = numbers[order], packed[order]
        for some in np.split(np.arange(len(order)), np.flatnonzero(np.diff(numbers)) + 1):
            if len(some):
                number = int(numbers[some[0]])
                fresh = self._slot(number)
                fresh += packed[some].tobytes()
                if len(fresh) >= RUN_COUNT * packed.itemsize:
                    self._seal(number)
        self._count_in(offsets)

    def cancel(self, out_ms: int, key: str, offset: int) -> None:
        """Void the messages with `key` that get out at `out_ms`; the order lies at `offset`."""
        self._mark(out_ms, [key_hash(out_ms, key), offset, offset])
        self._count_in(np.array([offset]))

    def supersede(self, out_ms: int, key: str, offset: int) -> None:
        """Void older copies of the message with `key` at `offset`."""
        self._mark(out_ms, [key_hash(out_ms, key), offset, _NOT_COUNTED])

    def _mark(self, out_ms: int, mark: list[int]) -> None:
        number = out_ms // self._slot_ms
        self._slot(number)
        self._marks.setdefault(number, array("q")).extend(mark)
        if self._void is not None and self._void[0] == number:
            self._void = None

    def _slot(self, number: int) -> bytearray:
        fresh = self._fresh.get(number)
        if fresh is None:
            fresh = self._fresh[number] = bytearray()
            heapq.heappush(self._heap, number)
        return fresh

    def _seal(self, number: int) -> list[NDArray[np.int64]]:
        """Sort what came to the slot; return its runs."""
        fresh = self._fresh[number]
        if not fresh:
            return self._runs.get(number, [])
        runs = self._runs.setdefault(number, [])
        run = np.frombuffer(fresh, np.int64)
        if runs and len(runs[-1]) + len(run) <= RUN_COUNT:
            run = np.concatenate((runs.pop(), run))
        runs.append(np.sort(run))
        self._fresh[number] = bytearray()
        return runs

    # --- Going out ---

    def due(self, now_ms: int, count_max: int) -> Due:
        """The first messages that are due, up to `count_max` and of one slot; maybe none."""
        self._close_slots(now_ms)
        begin_ms = self._heap[0] * self._slot_ms if self._heap else now_ms
        if begin_ms >= now_ms:
            return Due(_EMPTY, _EMPTY, NOTHING_VOID)
        runs = self._seal(self._heap[0])
        first = np.sort(np.concatenate([_EMPTY, *(run[:count_max] for run in runs)]))[:count_max]
        due_ms = begin_ms + 1 + (first >> OFFSET_BITS)
        count = int(np.searchsorted(due_ms, now_ms, "right"))
        voids = self._voids(self._heap[0]) if count else NOTHING_VOID
        return Due(first[:count] & _OFFSET_MASK, due_ms[:count], voids)

    def done(self, due: Due) -> None:
        """All that `due` has, the first of what was due, was released, or is void, or lost."""
        number = self._heap[0]
        last = due.due_ms[-1] - 1 - number * self._slot_ms << OFFSET_BITS | due.offsets[-1]
        runs = [run[int(np.searchsorted(run, last, "right")) :] for run in self._runs[number]]
        self._runs[number] = [run for run in runs if len(run)]
        self._count_out(due.offsets)

    def first_ms(self, now_ms: int) -> int | None:
        """No message is due before this time; None where there is none at all.

        Exact for messages of a slot whose time has come.
        """
        self._close_slots(now_ms)
        if not self._heap:
            return None
        number = self._heap[0]
        begin_ms = number * self._slot_ms
        if begin_ms >= now_ms and (self._fresh[number] or self._runs.get(number)):
            return begin_ms + 1
        firsts = [int(run[0]) for run in self._seal(number)]
        return begin_ms + 1 + (min(firsts) >> OFFSET_BITS) if firsts else begin_ms + self._slot_ms

    def _close_slots(self, now_ms: int) -> None:
        """Forget slots that hold no more messages; their marks count up to their ends."""
        while self._heap:
            number = self._heap[0]
            is_over = (number + 1) * self._slot_ms <= now_ms
            is_empty = not self._fresh[number] and not self._runs.get(number)
            if not is_empty or (number in self._marks and not is_over):
                return
            heapq.heappop(self._heap)
            del self._fresh[number]
            self._runs.pop(number, None)
            own = np.frombuffer(self._marks.pop(number, array("q")), np.int64)[2::3]
            self._count_out(own[own != _NOT_COUNTED])

    def _voids(self, number: int) -> Voids:
        marks = self._marks.get(number)
        if marks is None:
            return NOTHING_VOID
        if self._void is None or self._void[0] != number:
            void: dict[int, int] = {}
            cancelled: set[int] = set()
            for hashed, below, own in zip(marks[0::3], marks[1::3], marks[2::3], strict=True):
                void[hashed] = max(below, void.get(hashed, 0))
                if own != _NOT_COUNTED:
                    cancelled.add(hashed)
            self._void = number, Voids(void, frozenset(cancelled))
        return self._void[1]

    # --- All of them ---

    def marked_slots(self) -> list[Due]:
        """The messages of each slot that may have void ones."""
        found = []
        for number in sorted(self._marks):
            rest = np.sort(np.concatenate([_EMPTY, *self._seal(number)]))
            due_ms = number * self._slot_ms + 1 + (rest >> OFFSET_BITS)
            found.append(Due(rest & _OFFSET_MASK, due_ms, self._voids(number)))
        return found

    def offsets(self) -> NDArray[np.int64]:
        """The queue offsets of all messages, rising, without those that cancel others."""
        runs = [run for several in self._runs.values() for run in several]
        fresh = [np.frombuffer(some, np.int64) for some in self._fresh.values()]
        return np.sort(np.concatenate([_EMPTY, *runs, *fresh]) & _OFFSET_MASK)

    # --- The lowest one ---

    def low_offset(self, read_offset: int) -> int:
        """Nothing below is pending; `read_offset` is where reading goes on."""
        last = read_offset >> BUCKET_BITS
        if not self._counts:
            self._low_bucket = last
        while self._low_bucket < last and self._low_bucket not in self._counts:
            self._low_bucket += 1
        if self._low_bucket not in self._counts:
            return read_offset
        return min(self._low_bucket << BUCKET_BITS, read_offset)

    def _count_in(self, offsets: NDArray[np.int64]) -> None:
        self._count += len(offsets)
        buckets, counts = np.unique(offsets >> BUCKET_BITS, return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def _count_out(self, offsets: NDArray[np.int64]) -> None:
        self._count -= len(offsets)
        buckets, counts = np.unique(offsets >> BUCKET_BITS, return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            left = self._counts[bucket] - count
            if left:
                self._counts[bucket] = left
            else:
                del self._counts[bucket]

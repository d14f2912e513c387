"""Pending timer messages: slots by time, in packed integers.

A slot holds the messages that are due within one second, or longer if delays may exceed three days.
Each message takes eight bytes: its due time within the slot and its queue offset. A slot takes some
200 bytes more; there are at most 260,000 slots, whatever the longest delay. Two million messages
take 16 to 80 MB. A slot is sorted in runs, as they fill and when its time has come. So nothing
takes longer than some milliseconds. Python's garbage collector has no objects to visit here.

A slot also has tombstones: of cancelled messages, and of older copies of rolled ones. Like
RocketMQ's delete units, they apply within their slot only. They are compared with the messages'
keys when the messages are due. In RocketMQ a cancelled key also deletes messages that are sent
later. Here it deletes the messages already present, and their rolled copies. Tombstones are sorted
in runs as messages are: all of a slot may be cancelled.

The state is in memory only; a start reads it from the timer queue again.
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
# Bits of a queue offset within a bucket; pending messages are counted by bucket.
BUCKET_BITS = 10
# Messages or tombstones of a slot that make a sorted run.
RUN_COUNT = 1 << 16
# The queue offset of a tombstone that deletes every message with its key.
ANY_OFFSET = 1 << 62
_EMPTY = np.empty(0, np.int64)


def key_hash(out_ms: int, key: str) -> int:
    """Returns a number for a key among the messages whose TIMER_OUT_MS is `out_ms`."""
    octets = f"{out_ms}\0{key}".encode(errors="replace")
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Deleted messages of a slot: for a key's hash, messages below a queue offset.

    Each run has n hashes, sorted, and n queue offsets; of equal hashes the last one counts.
    """

    runs: tuple[NDArray[np.int64], ...]

    def __bool__(self) -> bool:
        return bool(self.runs)

    def cover(
        self, hashes: NDArray[np.int64], offsets: NDArray[np.int64], is_rolled: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Returns True for each of n messages that is tombstoned, by the hash of its key."""
        tombstoned: NDArray[np.bool_] = offsets < self._below(hashes)
        tombstoned |= is_rolled & (offsets < self._below(~hashes))
        return tombstoned

    def _below(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        order = np.argsort(hashes)
        wanted = hashes[order]
        below = np.full(len(hashes), -1)
        for hashed, offsets in self.runs:
            last = np.searchsorted(hashed, wanted, "right") - 1
            below[order] = np.maximum(
                below[order], np.where(hashed[last] == wanted, offsets[last], -1)
            )
        return below


NO_TOMBSTONES = Tombstones(())


@dataclass(frozen=True, slots=True)
class Due:
    """Due messages in their order: n queue offsets and n due times in ms."""

    offsets: NDArray[np.int64]
    due_ms: NDArray[np.int64]
    tombstones: Tombstones


class PendingMessages:
    """All pending messages: none below `low_offset`, most of them due within `delay_ms_max`."""

    def __init__(self, delay_ms_max: int, low_offset: int = 0, run_count: int = RUN_COUNT) -> None:
        seconds = -(-delay_ms_max // (SLOTS_MAX * SECOND_MS))
        self._slot_ms = max(seconds, 1) * SECOND_MS
        self._run_count = run_count
        # By slot: packed messages in order of arrival, sorted runs of them, and tombstones. A
        # tombstone has two numbers: hash of a key, and the queue offset below which it deletes
        # messages. Later tombstones of a key have higher offsets. A cancelled key has a second
        # tombstone for its rolled copies, with all bits of the hash inverted. The queue offset of
        # the cancel record counts as pending.
        self._fresh: dict[int, bytearray] = {}
        self._runs: dict[int, list[NDArray[np.int64]]] = {}
        self._fresh_tombstones: dict[int, array[int]] = {}
        self._tombstone_runs: dict[int, list[NDArray[np.int64]]] = {}
        self._orders: dict[int, array[int]] = {}
        self._heap: list[int] = []
        self._counts: dict[int, int] = {}
        self._low_bucket = low_offset >> BUCKET_BITS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    # --- Coming in ---

    def add(self, due_ms: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Adds n messages. Takes one step for each distinct slot."""
        numbers, within = np.divmod(due_ms - 1, self._slot_ms)
        packed = within << OFFSET_BITS | offsets
        order = np.argsort(numbers, kind="stable")
        numbers, packed = numbers[order], packed[order]
        for some in np.split(np.arange(len(order)), np.flatnonzero(np.diff(numbers)) + 1):
            if len(some):
                number = int(numbers[some[0]])
                fresh = self._slot(number)
                fresh += packed[some].tobytes()
                if len(fresh) >= self._run_count * packed.itemsize:
                    self._seal(number)
        self._count_in(offsets)

    def cancel(self, out_ms: int, key: str, offset: int) -> None:
        """Deletes the messages with `key` whose TIMER_OUT_MS is `out_ms`.

        The cancel record is at `offset`.
        """
        hashed = key_hash(out_ms, key)
        number = self._add_tombstones(out_ms, [hashed, offset, ~hashed, ANY_OFFSET])
        self._orders.setdefault(number, array("q")).append(offset)
        self._count += 1
        bucket = offset >> BUCKET_BITS
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def supersede(self, out_ms: int, key: str, offset: int) -> None:
        """Deletes older copies of the message with `key` at `offset`."""
        self._add_tombstones(out_ms, [key_hash(out_ms, key), offset])

    def _add_tombstones(self, out_ms: int, marks: list[int]) -> int:
        """Adds tombstones to the slot of that time; returns the slot's number."""
        number = out_ms // self._slot_ms
        self._slot(number)
        fresh = self._fresh_tombstones.setdefault(number, array("q"))
        fresh.extend(marks)
        if len(fresh) >= 2 * self._run_count:
            self._seal_marks(number)
        return number

    def _slot(self, number: int) -> bytearray:
        fresh = self._fresh.get(number)
        if fresh is None:
            fresh = self._fresh[number] = bytearray()
            heapq.heappush(self._heap, number)
        return fresh

    def _seal(self, number: int) -> list[NDArray[np.int64]]:
        """Sorts the slot's new messages; returns its runs."""
        fresh = self._fresh[number]
        if not fresh:
            return self._runs.get(number, [])
        runs = self._runs.setdefault(number, [])
        run = np.frombuffer(fresh, np.int64)
        if runs and len(runs[-1]) + len(run) <= self._run_count:
            run = np.concatenate((runs.pop(), run))
        runs.append(np.sort(run))
        self._fresh[number] = bytearray()
        return runs

    def _seal_marks(self, number: int) -> list[NDArray[np.int64]]:
        """Sorts the slot's new tombstones; returns their runs."""
        fresh = self._fresh_tombstones.get(number)
        if not fresh:
            return self._tombstone_runs.get(number, [])
        runs = self._tombstone_runs.setdefault(number, [])
        run = np.frombuffer(fresh, np.int64).reshape(-1, 2).T
        if runs and runs[-1].shape[1] + run.shape[1] <= self._run_count:
            run = np.concatenate((runs.pop(), run), axis=1)
        runs.append(run[:, np.argsort(run[0], kind="stable")])
        self._fresh_tombstones[number] = array("q")
        return runs

    # --- Going out ---

    def due(self, now_ms: int, count_max: int) -> Due:
        """Returns the first due messages of one slot, up to `count_max`; maybe none."""
        self._close_slots(now_ms)
        begin_ms = self._heap[0] * self._slot_ms if self._heap else now_ms
        if begin_ms >= now_ms:
            return Due(_EMPTY, _EMPTY, NO_TOMBSTONES)
        runs = self._seal(self._heap[0])
        first = np.sort(np.concatenate([_EMPTY, *(run[:count_max] for run in runs)]))[:count_max]
        due_ms = begin_ms + 1 + (first >> OFFSET_BITS)
        count = int(np.searchsorted(due_ms, now_ms, "right"))
        tombstones = self._tombstones(self._heap[0]) if count else NO_TOMBSTONES
        return Due(first[:count] & _OFFSET_MASK, due_ms[:count], tombstones)

    def done(self, due: Due) -> None:
        """Removes the messages of `due`: they were released, are tombstoned, or are lost.

        `due` must hold the first due messages.
        """
        number = self._heap[0]
        last = due.due_ms[-1] - 1 - number * self._slot_ms << OFFSET_BITS | due.offsets[-1]
        runs = [run[int(np.searchsorted(run, last, "right")) :] for run in self._runs[number]]
        self._runs[number] = [run for run in runs if len(run)]
        self._count_out(due.offsets)

    def first_ms(self, now_ms: int) -> int | None:
        """Returns a time before which no message is due; None if none is pending.

        It is exact for messages of a slot that has become due.
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
        """Forgets slots without messages; their tombstones count up to the slots' ends."""
        while self._heap:
            number = self._heap[0]
            is_over = (number + 1) * self._slot_ms <= now_ms
            is_empty = not self._fresh[number] and not self._runs.get(number)
            if not is_empty or (number in self._fresh_tombstones and not is_over):
                return
            heapq.heappop(self._heap)
            del self._fresh[number]
            self._runs.pop(number, None)
            self._fresh_tombstones.pop(number, None)
            self._tombstone_runs.pop(number, None)
            self._count_out(np.frombuffer(self._orders.pop(number, array("q")), np.int64))

    def _tombstones(self, number: int) -> Tombstones:
        return Tombstones(tuple(self._seal_marks(number)))

    # --- All of them ---

    def marked_slots(self) -> list[Due]:
        """Returns the messages of each slot that may have tombstoned ones."""
        found = []
        for number in sorted(self._fresh_tombstones):
            rest = np.sort(np.concatenate([_EMPTY, *self._seal(number)]))
            due_ms = number * self._slot_ms + 1 + (rest >> OFFSET_BITS)
            found.append(Due(rest & _OFFSET_MASK, due_ms, self._tombstones(number)))
        return found

    def offsets(self) -> NDArray[np.int64]:
        """Returns the queue offsets of all messages, rising, without cancel records."""
        runs = [run for several in self._runs.values() for run in several]
        fresh = [np.frombuffer(some, np.int64) for some in self._fresh.values()]
        return np.sort(np.concatenate([_EMPTY, *runs, *fresh]) & _OFFSET_MASK)

    # --- The lowest one ---

    def low_offset(self, read_offset: int) -> int:
        """Returns a queue offset below which nothing is pending.

        Reading continues at `read_offset`.
        """
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

"""Which transactions have ended, and how, as far as it matters still.

A half message has ended when an op message tells so. `next_half` is the first one that has not:
what lies below it is over, and is kept in memory only for calls that come late or twice, the newest
RECENT_MAX of them. When the oldest one ends late, `next_half` goes on in steps: very many may be
over behind it. Lives in memory; a start reads it from the half and op topics.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from rocketpy_broker.services.transactions.messages import Operation, OpMessage

RECENT_MAX = 100_000
# Passed over in one step: about a millisecond.
PASSED_A_STEP = 5_000


class TransactionTable:
    """Half messages by their queue offsets."""

    def __init__(self) -> None:
        self.next_half = 0
        self.next_op = 0
        self._ended: dict[int, Operation] = {}
        # Those of them that an op message in the log tells of.
        self._written: set[int] = set()
        self._recent: OrderedDict[int, Operation] = OrderedDict()
        # How those ended that have several half messages.
        self._copied: OrderedDict[int, Operation] = OrderedDict()
        # Op messages by queue offset, with the last half message that each tells of.
        self._ops: deque[tuple[int, int]] = deque()
        # The newest half message of transactions that were asked after, by their first one.
        self._newest: dict[int, int] = {}

    def begin(self, next_half: int, next_op: int) -> None:
        """Everything below is over."""
        self.next_half, self.next_op = next_half, next_op

    def decide(self, queue_offset: int, operation: Operation) -> None:
        """What becomes of a half message; an op message of it follows."""
        if queue_offset >= self.next_half:
            self._ended.setdefault(queue_offset, operation)

    def note(self, op: OpMessage) -> None:
        """An op message that is in the log."""
        for offset in op.offsets:
            self.decide(offset, op.operation)
        if op.offsets:
            self._written.update(offset for offset in op.offsets if offset >= self.next_half)
            self._ops.append((op.queue_offset, max(op.offsets)))
        self.advance()

    def operation(self, first_offset: int, queue_offset: int) -> Operation | None:
        """What has become of a transaction, of which one half message lies at `queue_offset`.

        None: nothing yet, or it is not known any more.
        """
        offset = self.newest(first_offset, queue_offset)
        found = self._ended.get(offset, self._recent.get(offset))
        return self._copied.get(first_offset) if found is Operation.COPIED else found

    def is_over(self, queue_offset: int) -> bool:
        """True if a half message needs nothing any more."""
        return queue_offset < self.next_half or queue_offset in self._ended

    def open_count(self, end: int) -> int:
        """How many of the half messages below queue offset `end` are not over."""
        return max(end - self.next_half - len(self._ended), 0)

    def copied(self, first_offset: int, queue_offset: int) -> None:
        """A transaction has a newer half message."""
        self._newest[first_offset] = queue_offset

    def newest(self, first_offset: int, queue_offset: int) -> int:
        """Returns the newest half message of a transaction, of which one lies at `queue_offset`."""
        return max(queue_offset, self._newest.get(first_offset, -1))

    def finish(self, first_offset: int, operation: Operation) -> None:
        """A transaction has ended, by its newest half message; older ones may be named yet."""
        if self._newest.pop(first_offset, None) is not None:
            self._copied[first_offset] = operation
            if len(self._copied) > RECENT_MAX:
                self._copied.popitem(last=False)

    def advance(self) -> bool:
        """Pass over what is over, a step of it; return whether there is more."""
        for _ in range(PASSED_A_STEP):
            if self.next_half not in self._written:
                break
            self._written.discard(self.next_half)
            self._recent[self.next_half] = self._ended.pop(self.next_half)
            self.next_half += 1
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)
        for _ in range(PASSED_A_STEP):
            if not self._is_op_over():
                break
            self.next_op = self._ops.popleft()[0] + 1
        return self.next_half in self._written or self._is_op_over()

    def _is_op_over(self) -> bool:
        return bool(self._ops) and self._ops[0][1] < self.next_half

"""Ended transactions and their outcome, as long as that is needed.

An op message ends a half message. `next_half` is the first open one; all below it have ended. Their
outcomes are kept in memory only for late or repeated calls, the newest RECENT_MAX of them. When the
oldest open one ends late, `next_half` moves in steps: very many later ones may have ended. The
state is in memory; a start reads it from the half and op topics.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from rocketpy_broker.services.transactions.messages import Operation, OpMessage

RECENT_MAX = 100_000
# Half messages passed in one step: about a millisecond.
PASSED_A_STEP = 5_000


class TransactionTable:
    """Half messages by their queue offsets."""

    def __init__(self) -> None:
        self.next_half = 0
        self.next_op = 0
        self._ended: dict[int, Operation] = {}
        # Ended half messages that an op message in the log names.
        self._written: set[int] = set()
        self._recent: OrderedDict[int, Operation] = OrderedDict()
        # Outcomes of transactions with several half messages.
        self._copied: OrderedDict[int, Operation] = OrderedDict()
        # Op messages by queue offset, each with the last half message that it names.
        self._ops: deque[tuple[int, int]] = deque()
        # The newest half message of each checked transaction, by its first one.
        self._newest: dict[int, int] = {}

    def begin(self, next_half: int, next_op: int) -> None:
        """Sets the first open half message and the first needed op message."""
        self.next_half, self.next_op = next_half, next_op

    def decide(self, queue_offset: int, operation: Operation) -> None:
        """Records the outcome of a half message; its op message follows."""
        if queue_offset >= self.next_half:
            self._ended.setdefault(queue_offset, operation)

    def note(self, op: OpMessage) -> None:
        """Takes in an op message that is in the log."""
        for offset in op.offsets:
            self.decide(offset, op.operation)
        if op.offsets:
            self._written.update(offset for offset in op.offsets if offset >= self.next_half)
            self._ops.append((op.queue_offset, max(op.offsets)))
        self.advance()

    def operation(self, first_offset: int, queue_offset: int) -> Operation | None:
        """Returns the outcome of the transaction that has a half message at `queue_offset`.

        None if it is open or no longer known.
        """
        offset = self.newest(first_offset, queue_offset)
        found = self._ended.get(offset, self._recent.get(offset))
        return self._copied.get(first_offset) if found is Operation.COPIED else found

    def is_over(self, queue_offset: int) -> bool:
        """True if a half message has ended."""
        return queue_offset < self.next_half or queue_offset in self._ended

    def open_count(self, end: int) -> int:
        """Returns the number of half messages below queue offset `end` that have not ended."""
        return max(end - self.next_half - len(self._ended), 0)

    def copied(self, first_offset: int, queue_offset: int) -> None:
        """Records a newer half message of a transaction."""
        self._newest[first_offset] = queue_offset

    def newest(self, first_offset: int, queue_offset: int) -> int:
        """Returns the queue offset of the transaction's newest half message, or `queue_offset`."""
        return max(queue_offset, self._newest.get(first_offset, -1))

    def finish(self, first_offset: int, operation: Operation) -> None:
        """Ends a transaction by its newest half message; calls may still name older ones."""
        if self._newest.pop(first_offset, None) is not None:
            self._copied[first_offset] = operation
            if len(self._copied) > RECENT_MAX:
                self._copied.popitem(last=False)

    def advance(self) -> bool:
        """Moves past ended half messages, one step; returns True if more follow."""
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

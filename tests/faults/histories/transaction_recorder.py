"""A recorder of workers' transactions in a history, judged at every start.

At a start readers get all visible messages, and the producer gets check-backs for open
transactions: first as the kill has left them, then after all answers. Each time the history has the
present knowledge, and one whole reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.histories.events import FINAL, Delivery, Fault, Half, Outcome, Stage
from tests.faults.histories.history import History, body_of
from tests.faults.workers.transaction_programs import BODY_BYTES, QUEUE
from tests.faults.workers.zygote import Event

OUTCOMES = dict.fromkeys(Stage, Outcome.HIDDEN) | {
    Stage.COMMITTING: Outcome.UNKNOWN,
    Stage.COMMITTED: Outcome.ACKED,
}
# The effect of a kill at a place on its transaction, beyond the answers that the producer got.
KILLED_AT = {
    "prepare: before half": Stage.GONE,
    "prepare: after half": Stage.PREPARED,
    "prepare: unanswered": Stage.PREPARED,
    "commit: before final": Stage.PREPARED,
    "commit: after final": Stage.COMMITTED,
    "commit: after op": Stage.COMMITTED,
    "commit: unanswered": Stage.COMMITTED,
    "rollback: before op": Stage.PREPARED,
    "rollback: after op": Stage.GONE,
    "rollback: unanswered": Stage.GONE,
}


def is_to_commit(name: str) -> bool:
    """True if the producer wants the transaction committed."""
    return name.startswith("c")


@dataclass
class TransactionRecorder:
    """A recorder of a history. `last` is the transaction of the worker's last word."""

    history: History = field(default_factory=History)
    halves: dict[str, Half] = field(default_factory=dict)
    last: str = ""

    def take(self, event: Event) -> None:
        """Records a producer's step."""
        match event:
            case ["preparing", name]:
                self.history.begin(name, QUEUE, [body_of(name, BODY_BYTES)])
                self.history.sends[name].unordered = True
                self.halves[name] = Half(name, Stage.PREPARING)
                self.history.events.append(self.halves[name])
                self._learn(name, Stage.PREPARING)
            case ["prepared", name]:
                self._learn(name, Stage.PREPARED)
            case ["ending", name]:
                self._learn(name, Stage.COMMITTING if is_to_commit(name) else Stage.ROLLING_BACK)
            case ["ended", name]:
                self._learn(name, Stage.COMMITTED if is_to_commit(name) else Stage.GONE)
            case ["at", place] if place in KILLED_AT:
                self._learn(self.last, KILLED_AT[place])
            case _:
                return

    def _learn(self, name: str, stage: Stage) -> None:
        self.last = name
        self.halves[name].stage = stage
        self.history.outcome(name, OUTCOMES[stage])

    def look(self, shown: Iterable[tuple[int, str, str]], asked: Sequence[str]) -> None:
        """Records all messages that readers see, and all check-backs."""
        self.history.deliveries.clear()
        for offset, name, body_hash in shown:
            self.history.seen(Delivery(FINAL, *QUEUE, offset, name, body_hash))
        for half in self.halves.values():
            half.asked = asked.count(half.message_id)
        for name in sorted(set(asked) - self.halves.keys()):
            self.history.events.append(Fault("phantom", f"{name!r} is asked after"))

    def settle(self) -> None:
        """Records that check-backs are answered: visible messages stay, and no other may appear."""
        there = {delivery.message_id for delivery in self.history.deliveries}
        for name, half in self.halves.items():
            is_committed = name in there or (half.asked and is_to_commit(name))
            self._learn(name, Stage.COMMITTED if is_committed else Stage.GONE)

    @property
    def is_worth_it(self) -> bool:
        """True if any transaction was committed."""
        return any(half.stage is Stage.COMMITTED for half in self.halves.values())

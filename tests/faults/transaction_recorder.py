"""From the words of workers that use transactions to a history, which is judged at every start.

At a start readers get all that shows, and the producer is asked after what is open: first as the
kill has left it, then when all questions are answered. Each time the history holds what is known
by then, and one whole reading. Row T1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.events import FINAL, Delivery, Fault, Half, Outcome, Stage
from tests.faults.history import History, body_of
from tests.faults.transaction_programs import BODY_BYTES, QUEUE
from tests.faults.zygote import Event

OUTCOMES = dict.fromkeys(Stage, Outcome.HIDDEN) | {
    Stage.COMMITTING: Outcome.UNKNOWN,
    Stage.COMMITTED: Outcome.ACKED,
}
# What a kill at a place makes of the transaction that it meets, beyond what its producer was told.
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
    """What the producer of a transaction wants."""
    return name.startswith("c")


@dataclass
class TransactionRecorder:
    """Writes a history. `last` is the transaction that a worker spoke of last."""

    history: History = field(default_factory=History)
    halves: dict[str, Half] = field(default_factory=dict)
    last: str = ""

    def take(self, event: Event) -> None:
        """Writes down what a producer does, up to its end."""
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
        """Writes down all that readers see, and what a producer is asked after."""
        self.history.deliveries.clear()
        for offset, name, body_hash in shown:
            self.history.seen(Delivery(FINAL, *QUEUE, offset, name, body_hash))
        for half in self.halves.values():
            half.asked = asked.count(half.message_id)
        for name in sorted(set(asked) - self.halves.keys()):
            self.history.events.append(Fault("phantom", f"{name!r} is asked after"))

    def settle(self) -> None:
        """Questions are answered; what showed stays, and nothing else may come."""
        there = {delivery.message_id for delivery in self.history.deliveries}
        for name, half in self.halves.items():
            is_committed = name in there or (half.asked and is_to_commit(name))
            self._learn(name, Stage.COMMITTED if is_committed else Stage.GONE)

    @property
    def is_worth_it(self) -> bool:
        """True if anything was committed."""
        return any(half.stage is Stage.COMMITTED for half in self.halves.values())

"""A history of what clients saw: sends, deliveries, locks and held pulls.

`judge` finds its faults. A history holds sends, each with a unique id, the hash of its body and its
outcome, and deliveries in the order in which readers got them. A message with an unknown outcome
(the broker died before it answered) may appear once or never. Each place where a message may appear
is a send of its own (see `copy_id`): a redelivery, a dead letter, the rest of an abandoned
transaction.

A history that fails is saved as a file; `python -m tests.faults.histories.history FILE` judges it
again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.events import (
    FINAL,
    AllOrNone,
    Calm,
    Cleaned,
    CleanedLog,
    Delivery,
    Event,
    ExactlyOne,
    Fault,
    Half,
    Held,
    Lock,
    Outcome,
    Send,
    Stage,
)
from tests.faults.histories.judge import judged

__all__ = ["FINAL", "Delivery", "Fault", "History", "Outcome", "Send", "judge"]
ID_END = b"|"
COPY = "~"
FAULTS_SHOWN_MAX = 20


_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Send, Delivery, Lock, Held, Calm, Fault),
        *(ExactlyOne, Half, AllOrNone, Cleaned, CleanedLog),
    )
}


def hash_of(body: bytes) -> str:
    """Returns a digest long enough to distinguish bodies."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def body_of(message_id: str, size_bytes: int) -> bytes:
    """Returns the body of a message: its id, then bytes that follow from the id."""
    head = message_id.encode("ascii") + ID_END
    filler = hashlib.blake2b(head).digest()
    return (head + filler * (size_bytes // len(filler) + 1))[: max(size_bytes, len(head))]


def id_of(body: bytes) -> str:
    """Returns the id at the start of a body."""
    return body.partition(ID_END)[0].decode("ascii", "replace")


def copy_id(message_id: str, topic: str, reconsume_times: int = 0) -> str:
    """Returns the id of a message's copy in another topic."""
    return f"{message_id}{COPY}{topic}{COPY}{reconsume_times}"


@dataclass
class History:
    """A record of calls from any thread, for `judge`; `events` has the other kinds."""

    sends: dict[str, Send] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        latest = (max(send.begun, send.ended or 0) for send in self.sends.values())
        self._events = itertools.count(max(latest, default=-1) + 1)
        self._lock = threading.Lock()

    def begin(self, sender: str, queue: QueueKey, bodies: Iterable[bytes]) -> None:
        """Records that `sender` is about to send these messages in one request."""
        with self._lock:
            now = next(self._events)
            for body in bodies:
                send = Send(id_of(body), hash_of(body), sender, *queue, now)
                assert send.message_id not in self.sends, "ids are unique"
                self.sends[send.message_id] = send

    def begin_copy(self, of: str, message_id: str, queue: QueueKey) -> Send:
        """Records a possible copy of a message in another topic; one more try of a known copy."""
        with self._lock:
            known = self.sends.get(message_id)
            if known is not None:
                known.tries += 1
                known.due_ms = 0
                return known
            body_hash = self.sends[of].body_hash
            send = Send(message_id, body_hash, of, *queue, next(self._events), unordered=True)
            self.sends[message_id] = send
            return send

    def acked(
        self,
        message_ids: Iterable[str],
        queue_id: int,
        queue_offset: int | None,
        log_end: int = 0,
        at_ms: float | None = None,
    ) -> None:
        """Records that the broker acknowledged the messages, from `queue_offset` on.

        None: they wait elsewhere, and their place is not known yet.
        """
        with self._lock:
            now = next(self._events)
            for index, message_id in enumerate(message_ids):
                send = self.sends[message_id]
                send.outcome, send.ended = Outcome.ACKED, now
                send.log_end, send.answered_ms = log_end, at_ms
                send.queue_id = queue_id
                if queue_offset is not None and not send.unordered:
                    send.queue_offset = queue_offset + index

    def refused(self, message_ids: Iterable[str]) -> None:
        """Records the answer that none of the messages is stored."""
        with self._lock:
            now = next(self._events)
            for message_id in message_ids:
                send = self.sends[message_id]
                send.outcome, send.ended = Outcome.REFUSED, now

    def outcome(self, message_id: str, outcome: Outcome, log_end: int = 0) -> None:
        """Records the present knowledge of a message's outcome."""
        send = self.sends[message_id]
        send.outcome, send.log_end = outcome, log_end

    def delivered(
        self, reader: str, queue: QueueKey, queue_offset: int, body: bytes, at_ms: int = 0
    ) -> None:
        """Records a delivery of a message to `reader`."""
        self.seen(Delivery(reader, *queue, queue_offset, id_of(body), hash_of(body), at_ms))

    def seen(self, delivery: Delivery) -> None:
        """Adds a delivery that was recorded elsewhere."""
        with self._lock:
            self.deliveries.append(delivery)

    def only_durable_is_promised(self, durable_end: int) -> None:
        """Drops promises that ASYNC_FLUSH does not make for a power cut.

        Unflushed messages may be there or not, and the store may forget what readers got of them.
        """
        for send in self.sends.values():
            if send.log_end > durable_end:
                send.outcome, send.answered_ms = Outcome.UNKNOWN, None
        self.deliveries = [
            delivery
            for delivery in self.deliveries
            if delivery.reader == FINAL or delivery.log_end <= durable_end
        ]

    def save(self, path: Path) -> None:
        """Writes one line of JSON for each send, delivery and other event."""
        with path.open("w", encoding="utf-8") as file:
            for event in (*self.sends.values(), *self.deliveries, *self.events):
                file.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        """Reads a file of `save`."""
        history = cls()
        for line in path.read_text(encoding="utf-8").splitlines():
            history._add(json.loads(line))
        return history

    def _add(self, fields: dict[str, Any]) -> None:
        kind = _KINDS[fields.pop("event")]
        if "message_ids" in fields:
            fields["message_ids"] = tuple(fields["message_ids"])
        event = kind(**fields)
        if isinstance(event, Send):
            self.sends[event.message_id] = replace(event, outcome=Outcome(event.outcome))
        elif isinstance(event, Delivery):
            self.deliveries.append(event)
        elif isinstance(event, Half):
            self.events.append(replace(event, stage=Stage(event.stage)))
        else:
            self.events.append(event)

    def check(self, folder: Path, seed: int, again: str = "") -> None:
        """Fails the test and keeps the history in `folder` if the judge finds a fault."""
        faults = judge(self)
        if faults:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "history.jsonl"
            self.save(path)
            counts = ", ".join(f"{n} {kind}" for kind, n in Counter(f.kind for f in faults).items())
            shown = "\n".join(fault.sentence for fault in faults[:FAULTS_SHOWN_MAX])
            raise AssertionError(
                f"seed {seed}: {counts}\n{shown}\n{again}"
                f"judge again: python -m tests.faults.histories.history {path}"
            )


def judge(history: History) -> list[Fault]:
    """Returns every fault of a history, sorted by kind."""
    return judged(history.sends, history.deliveries, history.events)


def main(paths: list[str]) -> int:
    """Judges saved histories; the exit status is 1 if one has faults."""
    found = False
    for path in paths:
        faults = judge(History.load(Path(path)))
        found = found or bool(faults)
        for fault in faults:
            sys.stdout.write(f"{fault.kind}: {fault.sentence}\n")
        sys.stdout.write(f"{path}: {len(faults)} faults\n")
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

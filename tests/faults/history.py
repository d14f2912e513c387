"""What clients saw, and a judge of it: lost, duplicate, phantom, wrong, moved, reordered, early.

A history holds sends, each with a unique id, the hash of its body and its outcome, and deliveries
in the order in which readers got them. An outcome that nobody knows (the broker died before it
answered) may appear once or never. A history that fails is saved as a file, and

    python -m tests.faults.history FILE

judges it again. Row M3.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from rocketpy_broker.store.values import QueueKey

ID_END = b"|"
# The reader who reads everything at the end; whatever it does not get is lost.
FINAL = "final"
FAULTS_SHOWN_MAX = 20


class Outcome(str, Enum):
    """How a send ended for its sender."""

    ACKED = "acked"
    # Declined with the promise that nothing was stored.
    REFUSED = "refused"
    # No answer, or one that leaves it open.
    UNKNOWN = "unknown"
    # A half message that was never committed: nobody may see it.
    HIDDEN = "hidden"


@dataclass(slots=True)
class Send:
    """One message. `begun` and `ended` count the history's events; times in milliseconds."""

    message_id: str
    body_hash: str
    sender: str
    topic: str
    queue_id: int
    begun: int
    outcome: Outcome = Outcome.UNKNOWN
    ended: int | None = None
    queue_offset: int | None = None
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as a reader got it."""

    reader: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body_hash: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that must not happen. `kind` is a word to count by."""

    kind: str
    sentence: str


def hash_of(body: bytes) -> str:
    """Enough of a digest to tell bodies apart."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def body_of(message_id: str, size_bytes: int) -> bytes:
    """The body of a message: its id, then bytes that follow from the id."""
    head = message_id.encode("ascii") + ID_END
    filler = hashlib.blake2b(head).digest()
    return (head + filler * (size_bytes // len(filler) + 1))[: max(size_bytes, len(head))]


def id_of(body: bytes) -> str:
    """The id at the start of a body."""
    return body.partition(ID_END)[0].decode("ascii", "replace")


@dataclass
class History:
    """Records from any thread; `judge` when all is over."""

    sends: dict[str, Send] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)

    def __post_init__(self) -> None:
        latest = (max(send.begun, send.ended or 0) for send in self.sends.values())
        self._events = itertools.count(max(latest, default=-1) + 1)
        self._lock = threading.Lock()

    def begin(self, sender: str, queue: QueueKey, bodies: Iterable[bytes]) -> None:
        """`sender` is about to send these messages in one request."""
        with self._lock:
            now = next(self._events)
            for body in bodies:
                send = Send(id_of(body), hash_of(body), sender, *queue, now)
                assert send.message_id not in self.sends, "ids are unique"
                self.sends[send.message_id] = send

    def acked(self, message_ids: Iterable[str], queue_id: int, queue_offset: int) -> None:
        """The broker has answered that they are stored from `queue_offset` on."""
        with self._lock:
            now = next(self._events)
            for offset, message_id in enumerate(message_ids, queue_offset):
                send = self.sends[message_id]
                send.outcome, send.ended = Outcome.ACKED, now
                send.queue_id, send.queue_offset = queue_id, offset

    def refused(self, message_ids: Iterable[str]) -> None:
        """The broker has answered that nothing of them is stored."""
        with self._lock:
            now = next(self._events)
            for message_id in message_ids:
                send = self.sends[message_id]
                send.outcome, send.ended = Outcome.REFUSED, now

    def delivered(
        self, reader: str, queue: QueueKey, queue_offset: int, body: bytes, at_ms: int = 0
    ) -> None:
        """`reader` got this message."""
        self.seen(Delivery(reader, *queue, queue_offset, id_of(body), hash_of(body), at_ms))

    def seen(self, delivery: Delivery) -> None:
        """A delivery that was taken down elsewhere."""
        with self._lock:
            self.deliveries.append(delivery)

    def save(self, path: Path) -> None:
        """Write one line of JSON for each send and each delivery."""
        with path.open("w", encoding="utf-8") as file:
            for send in self.sends.values():
                file.write(json.dumps(asdict(send)) + "\n")
            for delivery in self.deliveries:
                file.write(json.dumps(asdict(delivery)) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        """Read what `save` wrote."""
        history = cls()
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "reader" in entry:
                history.deliveries.append(Delivery(**entry))
            else:
                entry["outcome"] = Outcome(entry["outcome"])
                history.sends[entry["message_id"]] = Send(**entry)
        return history

    def check(self, folder: Path, seed: int) -> None:
        """Fail the test, and keep the history in `folder`, where the judge finds a fault."""
        faults = judge(self)
        if faults:
            path = folder / "history.jsonl"
            self.save(path)
            counts = ", ".join(f"{n} {kind}" for kind, n in Counter(f.kind for f in faults).items())
            shown = "\n".join(fault.sentence for fault in faults[:FAULTS_SHOWN_MAX])
            raise AssertionError(
                f"seed {seed}: {counts}\n{shown}\n"
                f"judge again: python -m tests.faults.history {path}"
            )


def judge(history: History) -> list[Fault]:
    """Every fault of a history, sorted by kind."""
    readings: dict[tuple[str, str, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        readings[delivery.reader, delivery.topic, delivery.queue_id].append(delivery)
    faults = list(_lost(history))
    for delivery in history.deliveries:
        faults += _of_delivery(history.sends.get(delivery.message_id), delivery)
    for reading in readings.values():
        faults += _duplicates(reading)
        faults += _reordered(history, reading)
    return sorted(faults)


def _lost(history: History) -> Iterator[Fault]:
    final = {d.message_id for d in history.deliveries if d.reader == FINAL}
    for send in history.sends.values():
        if send.outcome is Outcome.ACKED and send.message_id not in final:
            place = f"{send.topic}/{send.queue_id} at {send.queue_offset}"
            yield Fault("lost", f"{send.message_id} was acknowledged in {place}, and is not there")
    for delivery in history.deliveries:
        if delivery.reader != FINAL and delivery.message_id not in final:
            yield Fault("lost", f"{delivery.message_id} was read once, and is not there any more")


def _of_delivery(send: Send | None, delivery: Delivery) -> Iterator[Fault]:
    name = delivery.message_id
    place = (delivery.topic, delivery.queue_id, delivery.queue_offset)
    if send is None:
        yield Fault("phantom", f"{name!r} at {place} was never sent")
        return
    if send.outcome is Outcome.REFUSED:
        yield Fault("phantom", f"{name} at {place} had been refused")
    if send.outcome is Outcome.HIDDEN:
        yield Fault("half", f"{name} at {place} is a half message")
    if send.body_hash != delivery.body_hash:
        found, expected_hash = delivery.body_hash, send.body_hash
        yield Fault("wrong", f"{name} at {place} is {found}, and was sent as {expected_hash}")
    expected = (send.topic, send.queue_id, send.queue_offset)
    if send.outcome is Outcome.ACKED and place != expected:
        yield Fault("moved", f"{name} is at {place}, and was acknowledged at {expected}")
    if send.queue_id >= 0 and place[:2] != expected[:2]:
        yield Fault("moved", f"{name} is in {place[:2]}, and was sent to {expected[:2]}")
    if delivery.at_ms < send.due_ms:
        yield Fault("early", f"{name} came {send.due_ms - delivery.at_ms} ms before its time")


def _duplicates(reading: list[Delivery]) -> Iterator[Fault]:
    counts = Counter(delivery.message_id for delivery in reading)
    for message_id, count in counts.items():
        if count > 1:
            yield Fault("duplicate", f"{message_id} was read {count} times")


def _reordered(history: History, reading: list[Delivery]) -> Iterator[Fault]:
    """A send that ended before another began comes first; so does an earlier one of a sender."""
    sends = [history.sends[d.message_id] for d in reading if d.message_id in history.sends]
    earliest_end: float = float("inf")
    for send in reversed(sends):
        if earliest_end < send.begun:
            yield Fault("reordered", f"{send.message_id} lies before one that had ended before it")
        earliest_end = min(earliest_end, float("inf") if send.ended is None else send.ended)
    latest: dict[str, Send] = {}
    for send in sends:
        before = latest.get(send.sender)
        if before is not None and send.begun < before.begun:
            sentence = f"{send.message_id} lies behind {before.message_id}, and was sent before it"
            yield Fault("reordered", sentence)
        latest[send.sender] = send
    offsets = [delivery.queue_offset for delivery in reading]
    for low, high in itertools.pairwise(offsets):
        if high <= low:
            yield Fault("reordered", f"offset {high} was read after {low}")


def main(paths: list[str]) -> int:
    """Judge saved histories; the exit status is 1 if one has faults."""
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

"""The lines of a history: what clients asked for, and what they were told. Rows M2, M3, T1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

# The reader who reads everything at the end; whatever it does not get is lost.
FINAL = "final"


class Outcome(str, Enum):
    """How a send ended for its sender."""

    ACKED = "acked"
    # Declined with the promise that nothing was stored.
    REFUSED = "refused"
    # No answer, or one that leaves it open.
    UNKNOWN = "unknown"
    # A half message that was never committed, or one that was taken back: nobody may see it.
    HIDDEN = "hidden"


class Stage(str, Enum):
    """How far a half message is, as far as is known."""

    # Nobody has answered that it is stored.
    PREPARING = "preparing"
    PREPARED = "prepared"
    # Nobody has answered that it is committed.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling back"
    # Rolled back, or known to have never been stored.
    GONE = "gone"


@dataclass(slots=True)
class Send:
    """One message. `begun` and `ended` count the history's events; times in milliseconds.

    `log_end` is how far the log reached when the outcome was told, and `answered_ms` the monotonic
    time. `tries` counts sends of the same message. One that waits or is decided upon later is
    `unordered`. A `punctual` one is known to be due at `due_ms`, and not only not before.
    """

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
    log_end: int = 0
    answered_ms: float | None = None
    tries: int = 1
    unordered: bool = False
    punctual: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as a reader got it; `at_ms` is when it was stored, `log_end` where it ends."""

    reader: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body_hash: str
    at_ms: int = 0
    log_end: int = 0


@dataclass(slots=True)
class Lock:
    """`client` was told that it has a queue's lock, or that it has not: then both times are one.

    It has it from its request on, until it gives it up, the broker ends, or its time is over.
    """

    group: str
    topic: str
    queue_id: int
    client: str
    granted: bool
    from_ms: float
    to_ms: float


@dataclass(frozen=True, slots=True)
class Held:
    """A pull that was held for so long, and found nothing."""

    topic: str
    queue_id: int
    queue_offset: int
    from_ms: float
    to_ms: float


@dataclass(frozen=True, slots=True)
class Calm:
    """Wall times between which the broker served, its disk worked, and no clock was set."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that must not happen. `kind` is a word to count by."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ExactlyOne:
    """Of these messages one must be there in the end, and no other: a transaction that ended."""

    message_ids: tuple[str, ...]


@dataclass(slots=True)
class Half:
    """A half message, and how often its producer was asked after it when all was read."""

    message_id: str
    stage: Stage
    asked: int = 0


@dataclass(frozen=True, slots=True)
class AllOrNone:
    """These messages are of one batch."""

    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Messages of a queue below the offset were removed, as their age or the disk asks for."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """The log was removed up to an offset, also where its queues have forgotten that."""

    log_begin: int


Event: TypeAlias = Lock | Held | Calm | Fault | ExactlyOne | Half | AllOrNone | Cleaned | CleanedLog

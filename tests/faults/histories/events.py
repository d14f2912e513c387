"""The lines of a history: clients' requests and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

# The reader that reads everything at the end; a message that it does not get is lost.
FINAL = "final"


class Outcome(str, Enum):
    """The outcome of a send for its sender."""

    ACKED = "acked"
    # Declined with the promise that nothing was stored.
    REFUSED = "refused"
    # No answer, or one that leaves it open.
    UNKNOWN = "unknown"
    # A half message that was never committed, or a recalled message: no reader may see it.
    HIDDEN = "hidden"


class Stage(str, Enum):
    """The known stage of a half message."""

    # Its storage is not acknowledged yet.
    PREPARING = "preparing"
    PREPARED = "prepared"
    # Its commit is not acknowledged yet.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling back"
    # Rolled back, or known to have never been stored.
    GONE = "gone"


@dataclass(slots=True)
class Send:
    """One message. `begun` and `ended` count the history's events; times in milliseconds.

    `log_end` is the end of the log when the outcome was known, and `answered_ms` the monotonic
    time. `tries` counts sends of the same message. A message that waits or is decided later is
    `unordered`. A `punctual` one is due exactly at `due_ms`; any other is due at `due_ms` or later.
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
    """One message as a reader got it; `at_ms` is its store time, `log_end` its end in the log."""

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
    """A granted or denied lock of a queue; if denied, both times are the same.

    `client` has the lock from its request on, until it unlocks, the broker ends, or the lock
    expires.
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
    """A pull that was held from `from_ms` to `to_ms`, and found nothing."""

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
    """One violation; `kind` is a word to count by."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ExactlyOne:
    """The messages of an ended transaction: exactly one of them must be there at the end."""

    message_ids: tuple[str, ...]


@dataclass(slots=True)
class Half:
    """A half message, and the number of check-backs to its producer after all was read."""

    message_id: str
    stage: Stage
    asked: int = 0


@dataclass(frozen=True, slots=True)
class AllOrNone:
    """The messages of one batch."""

    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A removal of a queue's messages below an offset, for their age or for disk space."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """A removal of the log up to an offset, even if its queues have lost that."""

    log_begin: int


Event: TypeAlias = Lock | Held | Calm | Fault | ExactlyOne | Half | AllOrNone | Cleaned | CleanedLog

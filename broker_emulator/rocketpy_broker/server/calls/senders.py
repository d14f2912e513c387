"""What clients that send requests are believed to have in the broker's memory, by connection.

gRPC tells nothing of a request before it has come as a whole. But what a connection has received
and no method was given lies in memory. Lives in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocketpy_broker.config import KIB, MIB
from rocketpy_broker.server.calls.connection_traffic import Traffic

# Beyond so much in all, who stands still for so long ends.
HELD_BYTES_MAX = 128 * MIB
STANDSTILL_MS_MAX = 1_000
# So much is for those that never had a request of such a size taken. Beyond it one of them ends:
# who stands still, or else who came last.
STRANGERS_BYTES_MAX = 64 * MIB
LOOK_INTERVAL_MS = 25
# Who receives so much in that time loses little time by sending it again.
FAST_BYTES = 512 * KIB
# Who has not received so much stands still.
PROGRESS_BYTES = 4 * KIB
# Who holds less is not worth the harm.
WORTH_BYTES = 64 * KIB
# What a request is counted as beside its bytes, and what comes in for each answer that goes out:
# headers, frames, windows. It is rather too much, since a client that idles must not be believed to
# hold something.
HEAD_BYTES = 4 * KIB
FRAMES_SHARE = 64
# After so much it is looked at a connection that has nothing unfinished, or what its requests were
# counted too much as would hide what it holds later.
DELIVERED_BYTES_MAX = MIB
NO_TRAFFIC = Traffic(0, 0)


class Sender:
    """A connection, and what it is believed to hold in bytes."""

    __slots__ = (
        *("delivered", "gained", "held", "moved_ms", "peer"),
        *("_enough", "_given", "_looked_ms", "_traffic"),
    )

    def __init__(self, peer: str, now_ms: float) -> None:
        self.peer = peer
        # What methods were given of it since it was looked at.
        self.delivered = 0
        self.held = 0
        # By so much more each LOOK_INTERVAL_MS.
        self.gained = 0.0
        # When it last had received enough to count as getting on.
        self.moved_ms = now_ms
        self._looked_ms = now_ms
        self._traffic = NO_TRAFFIC
        self._enough = 0
        self._given = 0

    @property
    def is_stranger(self) -> bool:
        """True if methods have been given less of it in all than it holds."""
        return self._given < self.held

    def deliver(self, size: int) -> None:
        """A method is given a request of `size` bytes."""
        self.delivered += HEAD_BYTES + size + size // FRAMES_SHARE

    def look(self, traffic: Traffic, delivered: int, held_max: int, now_ms: float) -> None:
        """Counts what it has sent and received; methods had been given so much of that before.

        What it has not finished takes `held_max` bytes at most.
        """
        if traffic.received < self._traffic.received:
            # Another connection, from the same port.
            self._traffic, self._enough, self._given, self.held = NO_TRAFFIC, 0, 0, 0
        before = self.held
        gained = traffic.received - self._traffic.received
        gained -= (traffic.sent - self._traffic.sent) // FRAMES_SHARE
        self.held = min(max(self.held + gained - delivered, 0), held_max)
        intervals = max((now_ms - self._looked_ms) / LOOK_INTERVAL_MS, 1)
        self.gained, self._looked_ms = max(self.held - before, 0) / intervals, now_ms
        self.delivered -= delivered
        self._given += delivered
        self._traffic = traffic
        if traffic.received - self._enough >= PROGRESS_BYTES:
            self._enough, self.moved_ms = traffic.received, now_ms


def to_end(senders: Iterable[Sender], now_ms: float) -> Iterator[Sender]:
    """Who is to end for others, one after the other.

    `senders` are in the order in which they began. Of strangers as much is to be
    expected until the next look as came in that time before.
    """
    senders = list(senders)
    left = sum(each.held for each in senders)
    strange = sum(each.held + each.gained for each in senders if each.is_stranger)
    worth = [each for each in senders if each.held >= WORTH_BYTES]
    short_ms = now_ms - STANDSTILL_MS_MAX
    standing = [each for each in worth if each.moved_ms <= short_ms]
    moving = [each for each in reversed(worth) if each.moved_ms > short_ms]
    standing.sort(key=lambda each: (each.moved_ms, -each.held))
    moving.sort(key=lambda each: each.gained < FAST_BYTES)
    for each in standing + moving:
        too_strange = each.is_stranger and strange > STRANGERS_BYTES_MAX
        if too_strange or (left > HELD_BYTES_MAX and each.moved_ms <= short_ms):
            left -= each.held
            strange -= each.held + each.gained if each.is_stranger else 0
            yield each

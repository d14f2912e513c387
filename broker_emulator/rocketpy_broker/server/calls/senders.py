"""Estimates of the bytes that a connection's incomplete requests hold in memory.

gRPC reports nothing of a request before it is complete. But the bytes that a connection has
received and no method was given are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocketpy_broker.config import KIB, MIB
from rocketpy_broker.server.calls.connection_traffic import Traffic

# Beyond this total a sender without progress for STANDSTILL_MS_MAX ends.
HELD_BYTES_MAX = 128 * MIB
STANDSTILL_MS_MAX = 1_000
# The total of strangers: senders that hold more than methods were ever given of them. Beyond it a
# stranger ends: one without progress, or else the last one.
STRANGERS_BYTES_MAX = 64 * MIB
LOOK_INTERVAL_MS = 25
# A sender of this size per LOOK_INTERVAL_MS repeats its request quickly.
FAST_BYTES = 512 * KIB
# The received bytes that count as progress.
PROGRESS_BYTES = 4 * KIB
# A sender with less held bytes is not ended.
WORTH_BYTES = 64 * KIB
# Estimates for headers, frames and windows: of each request, and as a share of requests and
# answers. They are too high rather than too low: an idle client must not seem to hold bytes.
HEAD_BYTES = 4 * KIB
FRAMES_SHARE = 64
# A connection without incomplete requests is measured after this size. Otherwise the surplus of the
# estimates would hide bytes that it holds later.
DELIVERED_BYTES_MAX = MIB
NO_TRAFFIC = Traffic(0, 0)


class Sender:
    """A connection and the estimated bytes that it holds."""

    __slots__ = (
        *("delivered", "gained", "held", "moved_ms", "peer"),
        *("_enough", "_given", "_looked_ms", "_traffic"),
    )

    def __init__(self, peer: str, now_ms: float) -> None:
        self.peer = peer
        # Bytes that methods were given since the last look.
        self.delivered = 0
        self.held = 0
        # The growth of `held` per LOOK_INTERVAL_MS.
        self.gained = 0.0
        # The last time at which it had received PROGRESS_BYTES more.
        self.moved_ms = now_ms
        self._looked_ms = now_ms
        self._traffic = NO_TRAFFIC
        self._enough = 0
        self._given = 0

    @property
    def is_stranger(self) -> bool:
        """True if it holds more bytes than methods were ever given of it."""
        return self._given < self.held

    def deliver(self, size: int) -> None:
        """Counts a request of `size` bytes that a method was given."""
        self.delivered += HEAD_BYTES + size + size // FRAMES_SHARE

    def look(self, traffic: Traffic, delivered: int, held_max: int, now_ms: float) -> None:
        """Updates the estimate from the connection's traffic.

        `delivered` are the bytes that methods were given before the traffic was read. Incomplete
        requests hold at most `held_max` bytes.
        """
        if traffic.received < self._traffic.received:
            # A new connection from the same port.
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
    """Yields the senders to end so that the totals fall below their limits.

    `senders` are in order of their first reads. Strangers are expected to receive as much until
    the next look as since the last one.
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

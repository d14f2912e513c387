"""Pulls at queue ends, held by brokers until a message comes.

A held pull costs one request in 15 s for a queue. A new message is reported within milliseconds.
The pull stays with its broker while a batch is processed, and also serves the next wait. Nothing is
kept that a crash could lose. Source: docs/design/remoting.md section 2.5.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent import futures
from dataclasses import dataclass

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    HELD_LONGER_MS_MAX,
    Pull,
    PullResult,
    PullStatus,
    pull,
)
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from rocketpy_proto.remoting import MessageQueue

# The hold time of RocketMQ's own clients.
HOLD_MS = 15_000
# A pull answered sooner without a message was not held.
HELD_MS_MIN = 500
# Limit of queues with a held pull; fan-outs find the messages of the remaining queues.
HELD_MAX = 256


@dataclass(frozen=True, slots=True)
class _HeldPull:
    offset: int
    call: Call[PullResult]
    since_ms: int

    @property
    def until_ms(self) -> int:
        """Deadline for its answer."""
        return self.since_ms + HOLD_MS + HELD_LONGER_MS_MAX


class HeldPulls:
    """Held pulls of one query, by queue."""

    def __init__(self, cluster: Cluster, timeouts: Timeouts) -> None:
        self._cluster = cluster
        self._timeouts = timeouts
        self._held: dict[MessageQueue, _HeldPull] = {}
        # Queues whose broker holds no pull: an offset, and the time until which no pull is tried
        # again at this offset.
        self._unheld: dict[MessageQueue, tuple[int, int]] = {}

    def wait(self, group: str, ends: Iterable[tuple[MessageQueue, int]], wait_ms: int) -> None:
        """Waits until a message may have come after one of these ends, at most `wait_ms`."""
        wanted = {
            self._held[queue].call.pending.future
            for queue, offset in ends
            if self._hold(group, queue, offset)
        }
        if not wanted:
            clock.sleep_ms(wait_ms)
            return
        futures.wait(wanted, wait_ms / 1000, futures.FIRST_COMPLETED)
        for queue in [queue for queue, held in self._held.items() if held.call.is_answered]:
            self._end(queue)

    def _hold(self, group: str, queue: MessageQueue, offset: int) -> bool:
        """True if a pull is held at this offset."""
        now_ms = clock.monotonic_ms()
        held = self._held.get(queue)
        if held is not None and (held.offset != offset or held.until_ms <= now_ms):
            held.call.leave()
            del self._held[queue]
        elif held is not None:
            return True
        at, until_ms = self._unheld.get(queue, (-1, 0))
        if len(self._held) >= HELD_MAX or (at == offset and until_ms > now_ms):
            return False
        wanted = Pull(group, queue, offset, count=1, suspend_ms=HOLD_MS)
        try:
            call = pull(self._cluster, wanted, self._timeouts)
        except (ConnectionFailedError, BrokerError):
            self._unheld[queue] = offset, now_ms + HOLD_MS
            return False
        self._held[queue] = _HeldPull(offset, call, now_ms)
        return True

    def _end(self, queue: MessageQueue) -> None:
        held = self._held.pop(queue)
        now_ms = clock.monotonic_ms()
        try:
            has_timed_out = held.call.answer().status is PullStatus.NO_NEW_MESSAGE
        except (ConnectionFailedError, BrokerError):
            has_timed_out = False
        # A new pull at once after any other answer would repeat without end.
        if not has_timed_out or now_ms - held.since_ms < HELD_MS_MIN:
            self._unheld[queue] = held.offset, now_ms + HOLD_MS

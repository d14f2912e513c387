"""Send pipeline: one send batch under way for each queue.

Each queue has a lane. A broker's threads store requests of one connection in any order. So a
queue's next send batch leaves when the previous one is acknowledged. A broker refuses requests that
have waited for 200 ms. A congestion window finds by trial the number of send batches that a broker
takes at once.

A send batch with a passing error is sent again after a while, to the same queue. A movable one goes
to another broker's queue if its own broker does not answer. A send batch without an answer may be
stored: its messages then come twice. Nothing is kept that a crash could lose; unacknowledged
messages may or may not be stored.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.send.batches import SendBatch
from pyspark_rocketpy.transport.remoting.send.requests import SendResult
from pyspark_rocketpy.transport.retries import PASSING_ERRORS, Retries
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_proto.remoting import MessageQueue, ResponseCode

logger = logging.getLogger(__name__)

# Bytes that a task holds in all.
WAITING_BYTES_MAX = 32 << 20
# Send batches under way to one broker: at first, and at most. A refusal halves the window. A full
# window of acknowledgements adds one.
WINDOW_FIRST, WINDOW_MAX = 2.0, 32.0
_CallFuture = futures.Future[Any]
SendError = ConnectionFailedError | BrokerError


@dataclass(slots=True)
class _Lane:
    """Send batches of one queue; the first one is the one under way, if any."""

    queue: MessageQueue
    retries: Retries
    parcels: deque[SendBatch] = field(default_factory=deque)
    resume_ms: int = 0
    # True if the first send batch may be stored without an acknowledgement.
    is_in_doubt: bool = False
    # The offset after the last acknowledged send batch.
    end: int | None = None


@dataclass(slots=True)
class _Window:
    """Congestion window of a broker: the limit and the number of send batches under way."""

    size: float = WINDOW_FIRST
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    """A lane's first send batch, and its request."""

    lane: _Lane
    call: Call[SendResult]


class SendPipeline:
    """The lanes of one task. An error that it raises ends it."""

    def __init__(
        self,
        send: Callable[[MessageQueue, SendBatch], Call[SendResult]],
        elsewhere: Callable[[MessageQueue, frozenset[str]], MessageQueue | None],
        stored: Callable[[MessageQueue, SendBatch, SendResult], None],
        policy: RetryPolicy,
    ) -> None:
        """Sets the callbacks; `stored` is called for each acknowledgement.

        `elsewhere` returns a queue at a broker outside of the given set; None if there is none.
        """
        self._send = send
        self._elsewhere = elsewhere
        self._stored = stored
        self._policy = policy
        self._lanes: dict[MessageQueue, _Lane] = {}
        # Each lane with send batches is in one of these three: ready, flying or paused.
        self._ready: deque[_Lane] = deque()
        self._windows: dict[str, _Window] = defaultdict(_Window)
        self._flying: dict[_CallFuture, _Flight] = {}
        self._paused: list[_Lane] = []
        self._waiting_bytes = 0
        # Brokers that did not answer, until they do.
        self._away: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self._is_stored: Callable[[MessageQueue, SendBatch], bool] | None = None

    def look_before_repeating(self, is_stored: Callable[[MessageQueue, SendBatch], bool]) -> None:
        """Sets the check of send batches without an answer.

        A send batch that is stored is not sent again.
        """
        self._is_stored = is_stored

    def end_of(self, queue: MessageQueue) -> int | None:
        """Returns the offset after a queue's last acknowledged send batch, or None."""
        lane = self._lanes.get(queue)
        return None if lane is None else lane.end

    def put(self, queue: MessageQueue, parcel: SendBatch) -> None:
        """Queues a send batch; waits while too many bytes are queued. Raises as `finish`."""
        if parcel.is_movable and queue.broker_name in self._away:
            queue = self._elsewhere(queue, self._away) or queue
        self._queue_up(queue, parcel)
        self._waiting_bytes += len(parcel.body)
        self._start_ready()
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._await_one()

    def finish(self) -> None:
        """Waits for all acknowledgements. Raises BrokerError, ConnectionFailedError."""
        while self._ready or self._flying or self._paused:
            self._await_one()

    def _queue_up(self, queue: MessageQueue, parcel: SendBatch) -> None:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = _Lane(queue, Retries(self._policy, lambda: None))
        if not lane.parcels:
            self._ready.append(lane)
        lane.parcels.append(parcel)

    def _start_ready(self) -> None:
        """Sends as much as the congestion windows allow.

        A failure at once may make other lanes ready.
        """
        held: deque[_Lane] = deque()
        while self._ready:
            lane = self._ready.popleft()
            window = self._windows[lane.queue.broker_name]
            if window.in_flight >= window.size:
                held.append(lane)
                continue
            try:
                if self._was_stored(lane):
                    self._done(lane)
                    continue
                call = self._send(lane.queue, lane.parcels[0])
            except (ConnectionFailedError, BrokerError) as error:
                self._failed(lane, error)
            else:
                window.in_flight += 1
                self._flying[call.pending.future] = _Flight(lane, call)
        self._ready = held

    def _await_one(self) -> None:
        """Waits until an answer has come, or a retry is due."""
        self._resume()
        self._start_ready()
        now_ms = clock.monotonic_ms()
        resumed = [lane.resume_ms for lane in self._paused]
        if not self._flying:
            # The check may have found the send batch in doubt.
            if not self._ready and resumed:
                clock.sleep_ms(max(min(resumed) - now_ms, 0))
            return
        deadlines = {f: one.call.pending.deadline_ms for f, one in self._flying.items()}
        wait_ms = max(min([*deadlines.values(), *resumed]) - now_ms, 0)
        done, _ = futures.wait(deadlines, wait_ms / 1000, futures.FIRST_COMPLETED)
        now_ms = clock.monotonic_ms()
        for future in done or [f for f, deadline in deadlines.items() if deadline <= now_ms]:
            self._settle(self._flying.pop(future))

    def _resume(self) -> None:
        now_ms = clock.monotonic_ms()
        self._ready.extend(lane for lane in self._paused if lane.resume_ms <= now_ms)
        self._paused = [lane for lane in self._paused if lane.resume_ms > now_ms]

    def _settle(self, flight: _Flight) -> None:
        """Handles an answer, or a timeout."""
        window = self._windows[flight.lane.queue.broker_name]
        window.in_flight -= 1
        try:
            result = flight.call.answer()
        except (ConnectionFailedError, BrokerError) as error:
            window.size = max(window.size / 2, 1.0)
            flight.lane.is_in_doubt |= not _is_refused(error)
            self._failed(flight.lane, error)
        else:
            if window.in_flight + 1 >= window.size:
                window.size = min(window.size + 1 / window.size, WINDOW_MAX)
            self._acknowledged(flight.lane, result)

    def _acknowledged(self, lane: _Lane, result: SendResult) -> None:
        lane.retries.succeeded()
        self._away -= {lane.queue.broker_name}
        lane.end = result.queue_offset + lane.parcels[0].count
        self._stored(lane.queue, lane.parcels[0], result)
        self._done(lane)
        if result.code is not ResponseCode.SUCCESS:
            self._tell(
                result.code.name,
                f"broker {lane.queue.broker_name} has stored messages of topic {lane.queue.topic}, "
                f"but not yet as safely as its settings ask for: {result.code.name}; they are not "
                "sent again",
            )

    def _was_stored(self, lane: _Lane) -> bool:
        if not lane.is_in_doubt or self._is_stored is None:
            return False
        return self._is_stored(lane.queue, lane.parcels[0])

    def _done(self, lane: _Lane) -> None:
        """Removes the first send batch, which is stored."""
        lane.is_in_doubt = False
        self._waiting_bytes -= len(lane.parcels.popleft().body)
        if lane.parcels:
            self._ready.append(lane)

    def _failed(self, lane: _Lane, error: SendError) -> None:
        """Pauses or moves a lane. Raises errors that do not pass, or did not in time."""
        if not _is_passing(error):
            raise error
        moved_to = self._other_queue(lane, error)
        if moved_to is None:
            lane.resume_ms = clock.monotonic_ms() + lane.retries.wait_ms(error)
            self._paused.append(lane)
        else:
            left, lane.parcels = lane.parcels, deque()
            for parcel in left:
                self._queue_up(moved_to, parcel)
        self._tell(
            "again",
            f"a send to broker {lane.queue.broker_name} is repeated, as others may be that follow; "
            f"messages that it has stored nevertheless come twice: {error}",
        )

    def _other_queue(self, lane: _Lane, error: SendError) -> MessageQueue | None:
        if not isinstance(error, ConnectionFailedError) or error.is_lasting:
            return None
        self._away |= {lane.queue.broker_name}
        if not all(parcel.is_movable for parcel in lane.parcels):
            return None
        return self._elsewhere(lane.queue, self._away)

    def _tell(self, what: str, text: str) -> None:
        """Logs a warning once a task."""
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s", text)


def _is_refused(error: SendError) -> bool:
    """True if a broker has answered that it did not store the messages.

    A system error may occur after the store.
    """
    if isinstance(error, ConnectionFailedError):
        return False
    return error.response_code != ResponseCode.SYSTEM_ERROR


def _is_passing(error: SendError) -> bool:
    """True if the same request may succeed later.

    An unknown topic may pass. It existed at the start of the task: name servers and slaves forget
    topics for moments.
    """
    return isinstance(error, (*PASSING_ERRORS, TopicNotExistError))

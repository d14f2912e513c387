"""Send pipeline: one send batch under way for each queue.

Each queue has a sender. A broker's threads store requests of one connection in any order. So a
queue's next send batch leaves when the previous one is acknowledged. A broker refuses requests that
have waited for 200 ms. A congestion window finds by trial the number of send batches that a broker
takes at once.

A send batch with a retriable error is sent again after a while, to the same queue. A movable one
goes to another broker's queue if its own broker does not answer. A send batch without an answer may
be stored: with at-least-once delivery, its messages then come twice. Nothing is kept that a crash
could lose; unacknowledged messages may or may not be stored.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.congestion_window import CongestionWindow
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.net.responses import is_refused, is_retriable
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, SendResult
from pyspark_rocketpy.transport.retries import Retries
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_proto.remoting import MessageQueue, ResponseCode

logger = logging.getLogger(__name__)

# Bytes that a task holds in all.
WAITING_BYTES_MAX = 32 << 20
_CallFuture = futures.Future[Any]
SendError = ConnectionFailedError | BrokerError


@dataclass(slots=True)
class _QueueSender:
    """Send batches of one queue; the first one is the one under way, if any."""

    queue: MessageQueue
    retries: Retries
    send_batches: deque[SendBatch] = field(default_factory=deque)
    resume_ms: int = 0
    # True if the first send batch may be stored without an acknowledgement.
    is_in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class _SentBatch:
    """A sender's first send batch, and its request."""

    sender: _QueueSender
    call: Call[SendResult]


class SendPipeline:
    """The senders of one task. An error that it raises ends it."""

    def __init__(
        self,
        send: Callable[[MessageQueue, SendBatch], Call[SendResult]],
        elsewhere: Callable[[MessageQueue, frozenset[str]], MessageQueue | None],
        stored: Callable[[MessageQueue, SendBatch, SendResult], None],
        is_stored: Callable[[MessageQueue, SendBatch], bool],
        policy: RetryPolicy,
    ) -> None:
        """Sets the callbacks; `stored` is called for each acknowledgement.

        `elsewhere` returns a queue at a broker outside of the given set; None if there is none.
        A send batch without an answer is not sent again if it `is_stored`.
        """
        self._send = send
        self._elsewhere = elsewhere
        self._stored = stored
        self._is_stored = is_stored
        self._policy = policy
        self._senders: dict[MessageQueue, _QueueSender] = {}
        # Each sender with send batches is in one of these three: ready, in flight or paused.
        self._ready: deque[_QueueSender] = deque()
        self._windows: dict[str, CongestionWindow] = defaultdict(CongestionWindow)
        self._in_flight: dict[_CallFuture, _SentBatch] = {}
        self._paused: list[_QueueSender] = []
        self._waiting_bytes = 0
        # Brokers that did not answer, until they do.
        self._unavailable: frozenset[str] = frozenset()
        self._warned: set[str] = set()

    def put(self, queue: MessageQueue, send_batch: SendBatch) -> None:
        """Queues a send batch; waits while too many bytes are queued. Raises as `finish`."""
        if send_batch.is_movable and queue.broker_name in self._unavailable:
            queue = self._elsewhere(queue, self._unavailable) or queue
        self._queue_up(queue, send_batch)
        self._waiting_bytes += len(send_batch.body)
        self._start_ready()
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._await_one()

    def finish(self) -> None:
        """Waits for all acknowledgements. Raises BrokerError, ConnectionFailedError."""
        while self._ready or self._in_flight or self._paused:
            self._await_one()

    def _queue_up(self, queue: MessageQueue, send_batch: SendBatch) -> None:
        sender = self._senders.get(queue)
        if sender is None:
            sender = self._senders[queue] = _QueueSender(queue, Retries(self._policy))
        if not sender.send_batches:
            self._ready.append(sender)
        sender.send_batches.append(send_batch)

    def _start_ready(self) -> None:
        """Sends as much as the congestion windows allow.

        A failure at once may make other senders ready.
        """
        held: deque[_QueueSender] = deque()
        while self._ready:
            sender = self._ready.popleft()
            window = self._windows[sender.queue.broker_name]
            if window.in_flight >= window.size:
                held.append(sender)
                continue
            try:
                if sender.is_in_doubt and self._is_stored(sender.queue, sender.send_batches[0]):
                    self._done(sender)
                    continue
                call = self._send(sender.queue, sender.send_batches[0])
            except (ConnectionFailedError, BrokerError) as error:
                self._failed(sender, error)
            else:
                window.in_flight += 1
                self._in_flight[call.pending.future] = _SentBatch(sender, call)
        self._ready = held

    def _await_one(self) -> None:
        """Waits until an answer has come, or a retry is due."""
        self._resume()
        self._start_ready()
        now_ms = clock.monotonic_ms()
        resumed = [sender.resume_ms for sender in self._paused]
        if not self._in_flight:
            # A sender is ready if its send batch in doubt was found stored.
            if not self._ready and resumed:
                clock.sleep_ms(max(min(resumed) - now_ms, 0))
            return
        deadlines = {f: one.call.pending.deadline_ms for f, one in self._in_flight.items()}
        wait_ms = max(min([*deadlines.values(), *resumed]) - now_ms, 0)
        done, _ = futures.wait(deadlines, wait_ms / 1000, futures.FIRST_COMPLETED)
        now_ms = clock.monotonic_ms()
        for future in done or [f for f, deadline in deadlines.items() if deadline <= now_ms]:
            self._complete(self._in_flight.pop(future))

    def _resume(self) -> None:
        now_ms = clock.monotonic_ms()
        self._ready.extend(sender for sender in self._paused if sender.resume_ms <= now_ms)
        self._paused = [sender for sender in self._paused if sender.resume_ms > now_ms]

    def _complete(self, sent: _SentBatch) -> None:
        """Handles an answer, or a timeout."""
        window = self._windows[sent.sender.queue.broker_name]
        window.in_flight -= 1
        try:
            result = sent.call.answer()
        except (ConnectionFailedError, BrokerError) as error:
            window.halve()
            sent.sender.is_in_doubt |= not is_refused(error)
            self._failed(sent.sender, error)
        else:
            if window.in_flight + 1 >= window.size:
                window.grow()
            self._acknowledged(sent.sender, result)

    def _acknowledged(self, sender: _QueueSender, result: SendResult) -> None:
        sender.retries.succeeded()
        self._unavailable -= {sender.queue.broker_name}
        self._stored(sender.queue, sender.send_batches[0], result)
        self._done(sender)
        if result.code is not ResponseCode.SUCCESS:
            self._warn_once(
                result.code.name,
                f"broker {sender.queue.broker_name} has stored messages of topic "
                f"{sender.queue.topic}, but not yet with the durability of its settings: "
                f"{result.code.name}; they are not sent again",
            )

    def _done(self, sender: _QueueSender) -> None:
        """Removes the first send batch, which is stored."""
        sender.is_in_doubt = False
        self._waiting_bytes -= len(sender.send_batches.popleft().body)
        if sender.send_batches:
            self._ready.append(sender)

    def _failed(self, sender: _QueueSender, error: SendError) -> None:
        """Pauses or moves a sender. Raises errors that no retry helps against."""
        if not is_retriable(error):
            raise error
        moved_to = self._other_queue(sender, error)
        if moved_to is None:
            sender.resume_ms = clock.monotonic_ms() + sender.retries.wait_ms(error)
            self._paused.append(sender)
        else:
            left, sender.send_batches = sender.send_batches, deque()
            for send_batch in left:
                self._queue_up(moved_to, send_batch)
        self._warn_once(
            "again",
            f"a send to broker {sender.queue.broker_name} is repeated, and later sends may be "
            "repeated; with delivery at-least-once, messages that the broker has stored "
            f"nevertheless are stored twice: {error}",
        )

    def _other_queue(self, sender: _QueueSender, error: SendError) -> MessageQueue | None:
        if not isinstance(error, ConnectionFailedError):
            return None
        self._unavailable |= {sender.queue.broker_name}
        if not all(send_batch.is_movable for send_batch in sender.send_batches):
            return None
        return self._elsewhere(sender.queue, self._unavailable)

    def _warn_once(self, what: str, text: str) -> None:
        """Logs a warning once a task."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s", text)

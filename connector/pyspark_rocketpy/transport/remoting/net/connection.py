"""A connection with many requests under way, matched to answers by `opaque`.

The thread that sends a request writes it itself. A thread of the connection reads all answers, and
wakes waiters once for all answers that came together. A peer's request is refused: no service runs
here. A breach of the protocol ends the connection, and fails every waiting request. Nothing is kept
that a crash could lose; a request without an answer may have been done.

Source: docs/design/remoting.md sections 1.4 and 6.1.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial
from typing import Any

import msgspec

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.peers import (
    FIRST_BYTES,
    Peer,
    Timeouts,
    detect_protocol,
)
from pyspark_rocketpy.transport.remoting.net.streams import Stream, connect
from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    FrameDecoder,
    RemotingCommand,
    RemotingFormatError,
    ResponseCode,
    encode_frame,
)
from rocketpy_proto.tls import TlsConfig

# The answer to a batch names an id of up to 57 characters for each of 10,000 messages.
HEADER_BYTES_MAX = 1 << 20
# Limit of a connection's requests with discarded answers.
_ABANDONED_MAX = 1_000
_OPAQUE_MASK = (1 << 31) - 1
_REFUSAL_TIMEOUT_MS = 3_000


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request, and the limits of its answer; the connection assigns `opaque`."""

    request: RemotingCommand
    timeouts: Timeouts
    body_bytes_max: int

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Returns the fields without the request, which may hold secrets."""
        return [("timeouts", self.timeouts)]

    def __repr__(self) -> str:
        """Returns the same fields as text."""
        return f"OutgoingRequest({self.timeouts})"


class Pending(msgspec.Struct, eq=False):
    """A sent request. The time for its answer starts with the send."""

    connection: Connection
    outgoing: OutgoingRequest
    opaque: int
    deadline_ms: int
    # The number of the connection's receipts before the send.
    receipts: int
    # Set once, by the connection.
    outcome: RemotingCommand | ConnectionFailedError | None = None
    # Created for a caller that waits for several requests.
    acknowledged: futures.Future[None] | None = None

    @property
    def future(self) -> futures.Future[None]:
        """A future that is done when the request is over."""
        return self.connection.future_of(self)

    @property
    def is_over(self) -> bool:
        """True if `answer` returns or raises at once."""
        return self.outcome is not None

    def answer(self) -> RemotingCommand:
        """Returns the answer, once it is here. Raises ConnectionFailedError."""
        if not self.is_over:
            self.connection.wait_for(self)
        if isinstance(self.outcome, RemotingCommand):
            return self.outcome
        assert self.outcome is not None, "a request that is over has an outcome"
        raise self.outcome

    def end(self, outcome: RemotingCommand | ConnectionFailedError) -> None:
        """Sets the outcome; for the connection, under its lock."""
        self.outcome = outcome
        if self.acknowledged is not None:
            self.acknowledged.set_result(None)

    def leave(self) -> None:
        """Discards the answer: the connection skips it when it comes."""
        self.connection.leave(self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Returns the fields without request and answer, which may hold secrets."""
        return [("peer", self.connection.peer), ("opaque", self.opaque)]

    def __repr__(self) -> str:
        """Returns the same fields as text."""
        return f"Pending({self.connection.peer}, {self.opaque})"


class Connection:
    """A connection to a peer, for all threads of the process. The caller must `close` it."""

    def __init__(self, peer: Peer, stream: Stream) -> None:
        self.peer = peer
        self._stream = stream
        # Guards the fields below. It is reentrant: a thread that holds it may run the garbage
        # collector. The collector may close an unread range, which discards the range's requests.
        self._lock = threading.RLock()
        # Notifies waiters for an answer.
        self._arrival = threading.Condition(self._lock)
        self._opaques = itertools.count()
        self._waiting: dict[int, Pending] = {}
        self._abandoned: set[int] = set()
        self._failure: Callable[[], ConnectionFailedError] | None = None
        self._receipts = 0
        self._used_ms = clock.monotonic_ms()
        # Held around whole frames.
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"rocketpy {peer}", daemon=True)
        self._reader.start()

    @classmethod
    def open(cls, peer: Peer, timeouts: Timeouts, tls: TlsConfig | None) -> Connection:
        """Returns a new connection. Raises ConnectionFailedError, OptionError."""
        return cls(peer, connect(peer, timeouts, tls))

    @property
    def is_open(self) -> bool:
        """True if a request may still be answered."""
        return self._failure is None

    @property
    def is_awaited(self) -> bool:
        """True if a caller waits for an answer."""
        return bool(self._waiting)

    @property
    def idle_ms(self) -> int:
        """Time without traffic either way; 0 while a caller waits for an answer."""
        with self._lock:
            return 0 if self._waiting else clock.monotonic_ms() - self._used_ms

    @property
    def _possible_causes(self) -> str:
        """Possible causes, for an error text, while the peer has not sent anything yet."""
        return (
            ""
            if self._receipts
            else "; it may not be a RocketMQ server, or may require TLS (option tls)"
        )

    def ask_all(self, outgoing_requests: Sequence[OutgoingRequest]) -> list[Pending]:
        """Sends requests in one write; `Pending.answer` raises failures of the write.

        Raises UnencodableRemotingError for a request that no frame can hold; then none is sent.
        """
        opaques = [next(self._opaques) & _OPAQUE_MASK for _ in outgoing_requests]
        frames: list[bytes | memoryview] = []
        for outgoing, opaque in zip(outgoing_requests, opaques, strict=True):
            frames += encode_frame(outgoing.request, opaque)
        now_ms = clock.monotonic_ms()
        with self._lock:
            asked = [
                Pending(self, outgoing, opaque, now_ms + outgoing.timeouts.ms, self._receipts)
                for outgoing, opaque in zip(outgoing_requests, opaques, strict=True)
            ]
            self._used_ms = now_ms
            if self._failure is not None:
                for pending in asked:
                    pending.end(self._failure())
                return asked
            self._waiting.update(zip(opaques, asked, strict=True))
        if not self._write(frames, min(pending.deadline_ms for pending in asked)):
            for pending in asked:
                self._withdraw(pending)
        return asked

    def wait_for(self, pending: Pending) -> None:
        """Waits until the request is over, at most until its deadline."""
        left_ms = max(pending.deadline_ms - clock.monotonic_ms(), 0)
        with self._arrival:
            self._arrival.wait_for(lambda: pending.is_over, left_ms / 1000)
        if not pending.is_over:
            self._give_up(pending)

    def future_of(self, pending: Pending) -> futures.Future[None]:
        """Returns a future that is done when the request is over."""
        with self._lock:
            if pending.acknowledged is None:
                pending.acknowledged = futures.Future()
                if pending.is_over:
                    pending.acknowledged.set_result(None)
            return pending.acknowledged

    def _give_up(self, pending: Pending) -> None:
        """Ends the wait for an answer.

        Fails the connection if the peer has sent nothing since the request. Otherwise other
        requests continue.
        """
        timeouts = pending.outgoing.timeouts
        problem = (
            f"has not answered within {timeouts.ms} ms; set option {timeouts.option} higher if it "
            f"is only slow{self._possible_causes}"
        )
        with self._lock:
            if not self._abandon(pending, problem):
                return
            is_silent = self._receipts == pending.receipts
            is_forgetful = len(self._abandoned) > _ABANDONED_MAX
        if is_silent or is_forgetful:
            self._fail(problem)

    def leave(self, pending: Pending) -> None:
        """Discards an answer without doubting the peer, which may still be in time."""
        with self._lock:
            self._abandon(pending, "was not waited for: its answer is no longer needed")

    def _abandon(self, pending: Pending, problem: str) -> bool:
        """Discards the later answer of a request; True if a caller waited for it until now.

        The caller holds the lock.
        """
        if pending.opaque not in self._waiting:
            return False
        # This order leaves no unknown answer if the thread is interrupted in between.
        self._abandoned.add(pending.opaque)
        del self._waiting[pending.opaque]
        pending.end(self.peer.failed(problem))
        return True

    def close(self) -> None:
        """Ends the connection; waiting requests fail."""
        self._fail("was disconnected: the client closed its connection")
        self._reader.join()

    def abandon(self) -> None:
        """Closes the socket in a forked process; the parent continues to use the connection."""
        self._stream.close()

    def _withdraw(self, pending: Pending) -> None:
        """Fails a request of which nothing was sent."""
        timeouts = pending.outgoing.timeouts
        problem = f"accepted only other requests for {timeouts.ms} ms (option {timeouts.option})"
        with self._lock:
            if self._waiting.pop(pending.opaque, None) is not None:
                pending.end(self.peer.failed(problem))

    def _write(self, frames: list[bytes | memoryview], deadline_ms: int) -> bool:
        """True if the frames got the writer's lock in time. A failed write ends the connection."""
        left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
        if not self._writing.acquire(timeout=left_ms / 1000):
            return False
        try:
            if self._failure is None:
                self._stream.send(frames, deadline_ms)
        except TimeoutError:
            self._fail("accepts no more requests")
        except OSError as error:
            self._fail(f"broke the connection ({error})")
        except BaseException:
            # Part of a frame may be sent; the peer would take the next frame for its rest.
            self._fail("was disconnected: a request was interrupted")
            raise
        finally:
            self._writing.release()
        return True

    def _read(self) -> None:
        decoder = FrameDecoder(FRAME_BYTES_MAX, HEADER_BYTES_MAX)
        first = b""
        try:
            while data := self._stream.receive():
                if len(first) < FIRST_BYTES:
                    first = (first + data)[:FIRST_BYTES]
                    if (problem := detect_protocol(first)) is not None:
                        self._fail(problem, is_lasting=True)
                        return
                commands: list[RemotingCommand] = []
                try:
                    # Commands before invalid bytes still count.
                    commands.extend(decoder.feed(data))
                finally:
                    self._take(commands)
        except RemotingFormatError as error:
            self._fail(f"does not answer in RocketMQ's protocol ({error})", is_lasting=True)
        except OSError as error:
            self._fail(f"broke the connection ({error})")
        else:
            where = " within an answer" if decoder.begun_bytes else ""
            self._fail(f"closed the connection{where}{self._possible_causes}")
        finally:
            # No waiter is left, and no thread writes after the descriptor is reused.
            self._fail("is no longer read")
            with self._writing:
                self._stream.close()

    def _take(self, commands: Sequence[RemotingCommand]) -> None:
        """Delivers the answers that came together.

        Raises RemotingFormatError for an answer to no request.
        """
        with self._lock:
            self._receipts += 1
            self._used_ms = clock.monotonic_ms()
            for command in commands:
                if command.is_response:
                    self._take_answer(command)
            self._arrival.notify_all()
        for command in commands:
            if not command.is_response:
                self._refuse(command)

    def _take_answer(self, answer: RemotingCommand) -> None:
        pending = self._waiting.pop(answer.opaque, None)
        if pending is not None:
            pending.end(self._outcome(pending, answer))
        elif answer.opaque in self._abandoned:
            self._abandoned.remove(answer.opaque)
        else:
            raise RemotingFormatError(
                "answer", f"the opaque {answer.opaque} belongs to no request, or was answered twice"
            )

    def _outcome(
        self, pending: Pending, answer: RemotingCommand
    ) -> RemotingCommand | ConnectionFailedError:
        size, size_max = len(answer.body), pending.outgoing.body_bytes_max
        if size <= size_max:
            return answer
        problem = f"answers with {size} bytes, limit {size_max}"
        return self.peer.failed(problem, is_lasting=True)

    def _refuse(self, request: RemotingCommand) -> None:
        if not request.is_one_way:
            remark = f" request type {request.code} not supported"
            answer = request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            self._write(encode_frame(answer), clock.monotonic_ms() + _REFUSAL_TIMEOUT_MS)

    def _fail(self, problem: str, *, is_lasting: bool = False) -> None:
        """Ends the connection, with its first problem."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = partial(self.peer.failed, problem, is_lasting=is_lasting)
            waiting, self._waiting = self._waiting, {}
            self._stream.end()
            for pending in waiting.values():
                pending.end(self._failure())
            self._arrival.notify_all()

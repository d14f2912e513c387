"""One connection: many requests under way, their answers in any order, matched by `opaque`.

The thread that asks writes its request itself. All answers are read by a thread of the connection,
or, where one thread alone uses it, by that one while it waits: then no answer costs a change of
threads. A request that a peer sends is refused: nobody here serves one. Whatever breaks the
protocol ends the connection, and with it every request that waits. Nothing is kept that a crash
could lose; a request whose answer did not come may have been done. Source: spec/remoting.md
sections 1.4 and 6.1.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial

import msgspec

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.peers import FIRST_BYTES, Patience, Peer, stranger
from pyspark_rocketpy.transport.remoting.streams import Stream, TlsConfig, connect
from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    FrameDecoder,
    RemotingCommand,
    RemotingFormatError,
    ResponseCode,
    encode_frame,
)

# The answer to a batch names an id of up to 57 characters for each of 10,000 messages.
HEADER_BYTES_MAX = 1 << 20
# Requests of one connection whose answers nobody waits for any longer.
_ABANDONED_MAX = 1_000
_OPAQUE_MASK = (1 << 31) - 1
_REFUSAL_TIMEOUT_MS = 3_000


class Question(msgspec.Struct, frozen=True):
    """A request, and what of an answer is accepted; `opaque` is the connection's to give."""

    request: RemotingCommand
    patience: Patience
    body_bytes_max: int

    def __repr__(self) -> str:
        """Without the request, which may hold secrets."""
        return f"Question({self.request.code}, {self.patience})"


class Pending(msgspec.Struct, eq=False):
    """A request that was sent. The time for its answer began then."""

    connection: Connection
    question: Question
    opaque: int
    deadline_ms: int
    # How often something had come before.
    receipts: int
    # Done with the outcome; None where who asks reads the answers.
    _future: futures.Future[None] | None
    outcome: RemotingCommand | ConnectionFailedError | None = None

    def __repr__(self) -> str:
        """Without what was asked and answered, which may hold secrets."""
        return f"Pending({self.connection.peer}, {self.opaque})"

    @property
    def future(self) -> futures.Future[None]:
        """Done with the outcome, for who waits for several; not of a connection for one thread."""
        assert self._future is not None, "nobody reads here but who waits for one answer"
        return self._future

    @property
    def is_over(self) -> bool:
        """Whether `answer` returns or raises at once."""
        if self.outcome is None:
            self.connection.look()
        return self.outcome is not None

    def answer(self) -> RemotingCommand:
        """The answer, once it is here. Raises ConnectionFailedError."""
        if self.outcome is None:
            self.connection.wait_for(self)
        if isinstance(self.outcome, RemotingCommand):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome

    def end(self, outcome: RemotingCommand | ConnectionFailedError) -> None:
        """What became of it; for the connection."""
        self.outcome = outcome
        if self._future is not None:
            self._future.set_result(None)

    def wait(self, wait_ms: int) -> bool:
        """Whether it is over within that time, where a thread of the connection reads."""
        try:
            self.future.result(wait_ms / 1000)
        except futures.TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Nobody wants the answer any more: it is read over when it comes."""
        self.connection.leave(self)


class Connection:
    """A connection to a peer, for all threads of the process or for one. `close` it."""

    def __init__(self, peer: Peer, stream: Stream, *, is_shared: bool = True) -> None:
        self.peer = peer
        self._stream = stream
        # Around the fields below; never held while something is waited for.
        self._lock = threading.Lock()
        self._opaques = itertools.count()
        self._waiting: dict[int, Pending] = {}
        self._abandoned: set[int] = set()
        self._failure: Callable[[], ConnectionFailedError] | None = None
        self._receipts = 0
        self._used_ms = clock.monotonic_ms()
        # Held around whole frames.
        self._writing = threading.Lock()
        # Who reads has these two.
        self._decoder = FrameDecoder(FRAME_BYTES_MAX, HEADER_BYTES_MAX)
        self._first = b""
        self._reader: threading.Thread | None = None
        if is_shared:
            self._reader = threading.Thread(target=self._read, name=f"rocketpy {peer}", daemon=True)
            self._reader.start()

    @classmethod
    def open(
        cls, peer: Peer, patience: Patience, tls: TlsConfig | None, *, is_shared: bool = True
    ) -> Connection:
        """Raises ConnectionFailedError, OptionError."""
        return cls(peer, connect(peer, patience, tls), is_shared=is_shared)

    @property
    def is_open(self) -> bool:
        """Whether a request may still be answered."""
        return self._failure is None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting)

    @property
    def idle_ms(self) -> int:
        """For how long nothing has gone either way; 0 while an answer is waited for."""
        with self._lock:
            return 0 if self._waiting else clock.monotonic_ms() - self._used_ms

    @property
    def _doubt(self) -> str:
        """What a peer may be that has not said anything yet."""
        return "" if self._receipts else "; it may be no RocketMQ server, or want TLS (option tls)"

    def ask(self, question: Question) -> Pending:
        """Send a request. See `ask_all`."""
        return self.ask_all([question])[0]

    def ask_all(self, questions: Sequence[Question]) -> list[Pending]:
        """Send requests, all in one go. What fails on the way is raised by `Pending.answer`.

        Raises UnencodableRemotingError for a request that no frame holds; then none is sent.
        """
        opaques = [next(self._opaques) & _OPAQUE_MASK for _ in questions]
        frames: list[bytes | memoryview] = []
        for question, opaque in zip(questions, opaques, strict=True):
            frames += encode_frame(question.request, opaque)
        now_ms = clock.monotonic_ms()
        with self._lock:
            asked = [
                self._pending(question, opaque, now_ms)
                for question, opaque in zip(questions, opaques, strict=True)
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

    def _pending(self, question: Question, opaque: int, now_ms: int) -> Pending:
        future = None if self._reader is None else futures.Future[None]()
        return Pending(
            self, question, opaque, now_ms + question.patience.ms, self._receipts, future
        )

    def look(self) -> None:
        """Take what has come, where nobody else reads."""
        if self._reader is None and self._failure is None:
            self._receive(0)

    def wait_for(self, pending: Pending) -> None:
        """Until it is over; by its deadline it is."""
        while pending.outcome is None:
            left_ms = max(pending.deadline_ms - clock.monotonic_ms(), 0)
            # What was here in time counts, though nobody has read it.
            has_come = self._receive(left_ms) if self._reader is None else pending.wait(left_ms)
            if not has_come:
                self.give_up(pending)

    def give_up(self, pending: Pending) -> None:
        """Wait no longer: its future has a result soon. A peer that has sent nothing is given up.

        What others wait for goes on, where anything has come since this was asked.
        """
        with self._lock:
            if self._waiting.pop(pending.opaque, None) is None:
                return
            self._abandoned.add(pending.opaque)
            is_silent = self._receipts == pending.receipts
            is_forgetful = len(self._abandoned) > _ABANDONED_MAX
        patience = pending.question.patience
        problem = (
            f"has not answered within {patience.ms} ms; set option {patience.option} higher if it "
            f"is only slow{self._doubt}"
        )
        pending.end(self.peer.failed(problem))
        if is_silent or is_forgetful:
            self._fail(problem)

    def leave(self, pending: Pending) -> None:
        """Wait no longer, without a doubt in the peer: it may still be in time."""
        with self._lock:
            if self._waiting.pop(pending.opaque, None) is not None:
                self._abandoned.add(pending.opaque)

    def close(self) -> None:
        """End the connection; what waits for an answer fails."""
        self._fail("was left: its connection was closed here")
        if self._reader is not None:
            self._reader.join()
        else:
            self._stream.close()

    def abandon(self) -> None:
        """For a forked process, whose parent goes on with it: no thread reads here."""
        self._stream.close()

    def _withdraw(self, pending: Pending) -> None:
        """Fail a request of which nothing was sent."""
        with self._lock:
            was_waiting = self._waiting.pop(pending.opaque, None) is not None
        if was_waiting:
            patience = pending.question.patience
            problem = f"was taking other requests for {patience.ms} ms (option {patience.option})"
            pending.end(self.peer.failed(problem))

    def _write(self, frames: list[bytes | memoryview], deadline_ms: int) -> bool:
        """Whether it was these frames' turn in time. What fails then ends the connection."""
        left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
        if not self._writing.acquire(timeout=left_ms / 1000):
            return False
        try:
            if self._failure is None:
                self._stream.send(frames, deadline_ms)
        except TimeoutError:
            self._fail("takes no more requests")
        except OSError as error:
            self._fail(f"broke the connection ({error})")
        except BaseException:
            # Of a frame a part may be out, which the next one would be taken for.
            self._fail("was left: a request was interrupted")
            raise
        finally:
            self._writing.release()
        return True

    def _read(self) -> None:
        try:
            while self._receive():
                pass
        finally:
            # Nobody waits for ever, and nobody writes when the descriptor is another's.
            self._fail("is not listened to any more")
            with self._writing:
                self._stream.close()

    def _receive(self, wait_ms: int | None = None) -> bool:
        """Take what comes. False where nothing has within the time, and at the end."""
        try:
            data = self._stream.receive(wait_ms)
            if data is None:
                return False
            if data:
                self._receipts += 1
                self._used_ms = clock.monotonic_ms()
                return self._take_all(data)
        except RemotingFormatError as error:
            self._fail(f"does not answer as RocketMQ does ({error})", is_lasting=True)
        except OSError as error:
            self._fail(f"broke the connection ({error})")
        except BaseException:
            # Of what came a part may be lost.
            self._fail("was left: reading its answers was interrupted")
            raise
        else:
            where = " inside of an answer" if self._decoder.has_begun else ""
            self._fail(f"closed the connection{where}{self._doubt}")
        return False

    def _take_all(self, data: bytes) -> bool:
        """Whether it may be RocketMQ's. Raises RemotingFormatError."""
        if len(self._first) < FIRST_BYTES:
            self._first = (self._first + data)[:FIRST_BYTES]
            if (problem := stranger(self._first)) is not None:
                self._fail(problem, is_lasting=True)
                return False
        for command in self._decoder.feed(data):
            self._take(command)
        return True

    def _take(self, command: RemotingCommand) -> None:
        """Raises RemotingFormatError for an answer that nobody waits for."""
        if not command.is_response:
            self._refuse(command)
            return
        with self._lock:
            pending = self._waiting.pop(command.opaque, None)
            is_late = command.opaque in self._abandoned
            self._abandoned.discard(command.opaque)
        if pending is not None:
            self._give(pending, command)
        elif not is_late:
            raise RemotingFormatError(
                "answer", f"the opaque {command.opaque} is of no request, or came twice"
            )

    def _give(self, pending: Pending, command: RemotingCommand) -> None:
        size, size_max = len(command.body), pending.question.body_bytes_max
        if size > size_max:
            problem = f"answers with {size} bytes, at most {size_max} are accepted"
            pending.end(self.peer.failed(problem, is_lasting=True))
        else:
            pending.end(command)

    def _refuse(self, request: RemotingCommand) -> None:
        if not request.is_one_way:
            remark = f" request type {request.code} not supported"
            answer = request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            self._write(encode_frame(answer), clock.monotonic_ms() + _REFUSAL_TIMEOUT_MS)

    def _fail(self, problem: str, *, is_lasting: bool = False) -> None:
        """End the connection, for its first problem."""
        with self._lock:
            if self._failure is not None:
                return
            failure = partial(self.peer.failed, problem, is_lasting=is_lasting)
            self._failure = failure
            waiting, self._waiting = self._waiting, {}
            self._stream.end()
        for pending in waiting.values():
            pending.end(failure())

"""Calls of a forked process, made by a helper process.

A forked process has lost gRPC's threads, so a call there may hang. Such a process starts a new
Python process once and passes each call to it over pipes. The helper ends with the process that
started it, because its input ends. State: the helper.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Any
from weakref import WeakSet

from rocketpy_broker.client.calls.program_command import program_command
from rocketpy_broker.client.errors import ClientError, NotPassedError

PROGRAM = "rocketpy_broker.client.calls.fork_helper"
_helpers: WeakSet[Helper] = WeakSet()
_is_forked = False
_fork_count = 0


def is_forked() -> bool:
    """True if this process was forked after this module was imported."""
    return _is_forked


def fork_count() -> int:
    """Returns the number of processes that this process has forked."""
    return _fork_count


# By kind: the function that returns the plain value of an instance, also of a subclass.
_PLAIN: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    bytes: bytes,
    int: int.__int__,
    float: float.__float__,
}


class _PlainPickler(pickle.Pickler):
    """A pickler that passes on texts, bytes and numbers of a program's own classes as plain ones.

    The helper process cannot import the classes of the program's main module.
    """

    def reducer_override(self, value: object) -> Any:
        """Returns the reduction of such a value; NotImplemented for any other value."""
        for kind, made in _PLAIN.items():
            if isinstance(value, kind) and not isinstance(value, bool):
                return kind, (made(value),)
        return NotImplemented


def plain_bytes(value: object) -> bytes:
    """Returns a pickled value. Raises the errors of `pickle.dumps`."""
    buffer = io.BytesIO()
    _PlainPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


class Helper:
    """A process that makes the calls of one broker for the process that started it."""

    def __init__(self, broker: object) -> None:
        """Starts the helper process. Raises ClientError."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        try:
            self._process = subprocess.Popen(
                program_command(PROGRAM),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ClientError(
                f"the helper process of a forked process cannot be started: {error}"
            ) from error
        _helpers.add(self)
        self._write(broker)

    @property
    def is_usable(self) -> bool:
        """True if the helper runs and belongs to this process."""
        return self._pid == os.getpid() and self._process.poll() is None

    def call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> object:
        """Returns the result of a method of the broker.

        Raises ClientError, TypeError, ValueError.
        """
        with self._lock:
            try:
                self._write((name, args, options))
                assert self._process.stdout is not None
                # The helper is this program, and no other process has the pipe.
                answer, error = pickle.load(self._process.stdout)  # noqa: S301
            except (OSError, EOFError) as fault:
                self.close()
                raise ClientError(
                    f"the helper process of a forked process has ended in a call of {name}; "
                    "its standard error says why"
                ) from fault
            except BaseException:
                # The next call would read the rest of an interrupted answer.
                self.close()
                raise
        if error is not None:
            raise error
        return answer

    def _write(self, value: object) -> None:
        try:
            # The helper reads a whole value before it looks for the value's classes.
            data = pickle.dumps(plain_bytes(value))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise NotPassedError(error) from error
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends the helper."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            _close(pipe)

    def release(self) -> None:
        """Closes this process's copies of the pipes after a fork.

        The helper ends only when all copies of its input are closed.
        """
        self._close_pipes()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        # The rest of an interrupted call need not reach the helper.
        with contextlib.suppress(OSError):
            pipe.close()


def _after_fork() -> None:
    global _is_forked  # noqa: PLW0603 (a process is forked once)
    _is_forked = True
    for helper in list(_helpers):
        helper.release()


def _count_fork() -> None:
    global _fork_count  # noqa: PLW0603 (of the whole process)
    _fork_count += 1


os.register_at_fork(after_in_child=_after_fork, after_in_parent=_count_fork)

"""Calls of a forked process, made by a helper process.

gRPC's threads are gone in a forked process, and a call there may wait until it is killed. So a
forked process starts a fresh Python once, and passes each call to it over pipes. The helper ends
with the process that has started it, since its input ends then. State: the helper.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from typing import IO, Any
from weakref import WeakSet

from rocketpy_broker.embedded.process import LocalBrokerError

COMMAND = (sys.executable, "-m", "rocketpy_broker.embedded.fork_helper")
_helpers: WeakSet[Helper] = WeakSet()
_is_forked = False


def is_forked() -> bool:
    """True if this process was forked from one that has had gRPC."""
    return _is_forked


class Helper:
    """A process that makes the calls of one LocalBroker for the process that has started it."""

    def __init__(self, broker: object) -> None:
        """Raises LocalBrokerError."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        try:
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise LocalBrokerError(
                f"the helper process of a forked process cannot be started: {error}"
            ) from error
        _helpers.add(self)
        self._write(broker)

    @property
    def is_usable(self) -> bool:
        """True if it runs, and belongs to this process."""
        return self._pid == os.getpid() and self._process.poll() is None

    def call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> object:
        """Returns the answer of a method of the broker. Raises LocalBrokerError, TypeError, ValueError."""
        with self._lock:
            try:
                self._write((name, args, options))
                assert self._process.stdout is not None
                # The helper is this program, and the pipe is nobody else's.
                answer, error = pickle.load(self._process.stdout)  # noqa: S301
            except (OSError, EOFError) as fault:
                self.close()
                raise LocalBrokerError(
                    f"the helper process of a forked process has ended in a call of {name}; "
                    "its standard error says why"
                ) from fault
            except BaseException:
                # An interrupted answer would be taken for the next call's.
                self.close()
                raise
        if error is not None:
            raise error
        return answer

    def _write(self, value: object) -> None:
        try:
            data = pickle.dumps(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise LocalBrokerError(
                f"a forked process cannot pass this on to its helper process: {error}; "
                "give plain values"
            ) from error
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
        """Closes the copies of the pipes in a forked process: the helper ends by its input's end."""
        self._close_pipes()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        # What is left of an interrupted call is nothing for the helper.
        with contextlib.suppress(OSError):
            pipe.close()


def _after_fork() -> None:
    global _is_forked  # noqa: PLW0603 (a process is forked once)
    _is_forked = True
    for helper in list(_helpers):
        helper.release()


os.register_at_fork(after_in_child=_after_fork)

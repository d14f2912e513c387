"""Worker processes, forked from a process with all imports done.

`Zygote` is the side of the tests. It starts this module as a program, which loads the store and
then forks a worker for each request. A worker runs one function of a module in `PROGRAMS`. It
reports over a socket, line by line, so that all its words before a kill are known. Everything ends
with the test process: the zygote at the end of its socket, a worker at its next word.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketpy_broker.broker import Broker
from rocketpy_broker.config import BrokerConfig
from tests.support.time_limits import WAIT_SECONDS_MAX

TOP = Path(__file__).resolve().parents[3]
MESSAGE_BYTES_MAX = 1 << 16
RECEIVE_BYTES = 1 << 16
ANSWER_SECONDS_MAX = float(WAIT_SECONDS_MAX)

# Loaded once, shared by all workers.
PROGRAMS = (
    "tests.faults.workers.programs",
    "tests.faults.workers.disk_programs",
    "tests.faults.workers.transaction_programs",
)

Event = list[Any]
Program = Callable[..., None]


class Link:
    """The worker's end: `emit` reports, `wait_for_go` waits for the test."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def emit(self, *words: object) -> None:
        """Reports one event. On return it is out of this process, and survives its death."""
        self._connection.sendall(json.dumps(words).encode() + b"\n")

    def wait_for_go(self) -> None:
        """Waits for the test's go; ends the worker when the test has gone."""
        if not self._connection.recv(1):
            os._exit(1)


class Worker:
    """The test's end of one worker."""

    def __init__(self, zygote: Zygote, pid: int, connection: socket.socket) -> None:
        self._zygote = zygote
        self.pid = pid
        self._connection = connection
        self._rest = b""
        self._ended = False

    def events(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Iterator[Event]:
        """Yields the worker's events, until it ends or the time is over."""
        deadline = time.monotonic() + seconds_max
        while not self._ended:
            while (line_end := self._rest.find(b"\n")) >= 0:
                line, self._rest = self._rest[:line_end], self._rest[line_end + 1 :]
                yield json.loads(line)
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                return
            readable, _, _ = select.select([self._connection], [], [], seconds_left)
            if readable:
                data = self._receive()
                self._ended = not data
                self._rest += data

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            # The worker died with an unread go.
            return b""

    def expect(self, word: str) -> Event:
        """Returns the next event, which has to start with `word`."""
        event = next(self.events(), None)
        assert event is not None, f"the worker ended before it said {word!r}"
        assert event[0] == word, event
        return event

    def go(self) -> None:
        """Wakes a waiting worker."""
        self._connection.sendall(b"g")

    def kill(self) -> None:
        """Ends the worker as a crash does; `events` still yields its earlier words."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Returns the exit status, or minus the signal; drops the worker's remaining words."""
        for _event in self.events():
            pass
        assert self._ended, f"worker {self.pid} does not end"
        self._connection.close()
        return os.waitstatus_to_exitcode(self._zygote.wait(self.pid))


class Zygote:
    """A starter of workers, used as a context manager."""

    def __enter__(self) -> Zygote:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(ANSWER_SECONDS_MAX)
        self._alive: set[int] = set()
        command = [sys.executable, "-m", "tests.faults.workers.zygote", str(theirs.fileno())]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                command, cwd=TOP, env=environment, pass_fds=[theirs.fileno()]
            )
        return self

    def __exit__(self, *_error: object) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        self._control.close()
        self._process.wait(ANSWER_SECONDS_MAX)

    def start(self, program: Program, **arguments: Any) -> Worker:
        """Forks a worker that runs a function of one of the modules in `PROGRAMS`."""
        ours, theirs = socket.socketpair()
        words = {"module": program.__module__, "name": program.__name__, "arguments": arguments}
        request = json.dumps(words).encode()
        with theirs:
            socket.send_fds(self._control, [request], [theirs.fileno()])
            pid = int(self._control.recv(MESSAGE_BYTES_MAX))
        self._alive.add(pid)
        return Worker(self, pid, ours)

    def wait(self, pid: int) -> int:
        """Returns the wait status of a worker that has ended or is about to."""
        self._control.sendall(json.dumps({"wait": pid}).encode())
        status = int(self._control.recv(MESSAGE_BYTES_MAX))
        self._alive.discard(pid)
        return status


def _run(request: dict[str, Any], connection: socket.socket) -> int:
    """Runs one worker, from its fork to its end."""
    # The programs have imported this module by its name; `-m` loads a second one.
    link = importlib.import_module("tests.faults.workers.zygote").Link(connection)
    program = getattr(importlib.import_module(request["module"]), request["name"])
    try:
        program(link, **request["arguments"])
    except BrokenPipeError:
        return 2
    except BaseException:
        with contextlib.suppress(OSError):
            link.emit("died", traceback.format_exc())
        return 1
    return 0


def _serve(control: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 1)
        if not data:
            return
        request = json.loads(data)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            control.sendall(str(status).encode())
            continue
        with socket.socket(fileno=descriptors[0]) as connection:
            pid = os.fork()
            if pid == 0:
                control.close()
                # No code of this process may run in the worker: no flush, no exit handlers.
                os._exit(_run(request, connection))
        control.sendall(str(pid).encode())


if __name__ == "__main__":
    for name in PROGRAMS:
        importlib.import_module(name)
    # Imports pandas, which a worker would otherwise do among its traced calls.
    pa.array([0])
    # Builds the filters' parser and finds the hooks, which takes half a worker's time.
    Broker(BrokerConfig(Path(os.devnull)))
    # Workers' garbage collections skip shared objects.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        _serve(parent)

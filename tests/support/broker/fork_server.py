"""Processes of LocalBrokers, forked from a process that has imported the broker.

The imports are most of a broker's start, and tests start hundreds of brokers. `ForkServer` is the
side of the tests; it starts this module as a program, which ends with the test process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BROKER = "rocketpy_broker.broker_program"
# Of a broker, and of one with HTTP.
IMPORTED = (
    "rocketpy_broker.broker",
    "rocketpy_broker.server.http.server",
    "rocketpy_broker.server.http.api.routes",
    "rocketpy_broker.server.http.console.endpoint",
    "rocketpy_broker.services.observability.metrics.wiring",
)
MESSAGE_BYTES_MAX = 1 << 17
LOOK_SECONDS = 0.005


class ForkServer:
    """A starter of brokers; the first one starts the program, and `close` ends it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        self._control.close()
        self._theirs.close()
        if self._program is not None:
            self._program.wait()

    def start(self, command: Sequence[str], **streams: Any) -> Any:
        """Starts a command as Popen does, but forks a broker."""
        if list(command[3:4]) != [BROKER]:
            return subprocess.Popen(command, **streams)
        return ForkedBroker(self, command[4:], streams["stderr"].fileno())

    def ask(self, request: Mapping[str, object], *descriptors: int) -> Any:
        """Returns the program's answer; the caller has the lock."""
        if self._program is None:
            command = [sys.executable, "-m", __name__, str(self._theirs.fileno())]
            self._program = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[3],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[self._theirs.fileno()],
                start_new_session=True,
            )
            self._theirs.close()
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        return json.loads(self._control.recv(MESSAGE_BYTES_MAX))


class ForkedBroker:
    """A broker's process, with the methods of Popen that a LocalBroker uses."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], errors: int) -> None:
        self._server = server
        self._exit_code: int | None = None
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(our_out, "w"), os.fdopen(our_in)
        request = {"arguments": arguments, "environment": dict(os.environ)}
        with server.lock:
            self.pid: int = server.ask(request, their_in, their_out, errors)
        os.close(their_in)
        os.close(their_out)

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        with self._server.lock:
            if self._exit_code is None:
                self._exit_code = self._server.ask({"wait": self.pid})
            return self._exit_code

    def wait(self, timeout: float = float("inf")) -> int:
        """Returns the exit code at the process's end. Raises TimeoutExpired after seconds."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(BROKER, timeout)
            time.sleep(LOOK_SECONDS)
        return code

    def terminate(self, number: int = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.terminate(signal.SIGKILL)


def serve(control: socket.socket) -> list[str]:
    """Forks a process for each request; returns its arguments in that process."""
    while True:
        data, streams, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 3)
        if not data:
            sys.exit()
        request = json.loads(data)
        if not streams:
            ended, status = os.waitpid(request["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        elif (answer := os.fork()) == 0:
            os.setsid()
            os.environ.clear()
            os.environ.update(request["environment"])
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return [*request["arguments"]]
        for stream in streams:
            os.close(stream)
        control.send(json.dumps(answer).encode())


def run_broker() -> int:
    """Runs the broker's program; returns its exit code."""
    try:
        runpy.run_module(BROKER, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    # Two results that a process keeps; to make them takes longer than the rest of a start.
    importlib.import_module("rocketpy_broker.services.filters.parser").prepare()
    importlib.import_module("rocketpy_broker.services.hooks.chain").installed_hooks()
    # The garbage collections of the forks skip shared objects.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        sys.argv[1:] = serve(parent)
    code = run_broker()
    sys.stdout.flush()
    sys.stderr.flush()
    # The end of an interpreter would copy all shared pages to free their objects.
    os._exit(code)

"""Brokers and commands, forked from a process that has imported them.

The imports are most of a start, and tests start hundreds of programs. `ForkServer` is the side of
the tests; it starts this module as a program, which ends with the test process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

BROKER, COMMAND = "rocketpy_broker.broker_program", "rocketpy_broker"
COMMAND_LINE = "rocketpy_broker.cli"
# Of a broker, and of one with HTTP.
IMPORTED = (
    "rocketpy_broker.broker",
    "rocketpy_broker.server.http.server",
    "rocketpy_broker.server.http.api.routes",
    "rocketpy_broker.server.http.console.endpoint",
    "rocketpy_broker.services.observability.metrics.wiring",
)
OPTIONS = {"stdin", "stdout", "stderr", "text", "cwd", "env", "start_new_session"}
# Prefixes of the environment's names that the interpreter and libraries read at their start.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "ARROW_", "GRPC_", "TYPER_")
# Programs and clients of this project set it themselves, also in the tests' process.
SET_BY_PROGRAMS = "GRPC_VERBOSITY"
MESSAGE_BYTES_MAX = 1 << 17
LOOK_SECONDS = 0.005


class ForkServer:
    """A starter of programs; the first one starts the server's process, and `close` ends it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._environment = dict(os.environ)
        self._control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        self._control.close()
        self._theirs.close()
        if self._program is not None:
            self._program.wait()

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a command as Popen does, but forks a broker or `python -m rocketpy_broker`.

        A program in an environment that changes its start or its imports is not forked.
        """
        program = [*command[2 if command[1:2] == ["-m"] else 3 :]]
        read = _read_at_start(options.get("env") or os.environ)
        if (
            program[:1] not in ([BROKER], [COMMAND])
            or read != _read_at_start(self._environment)
            or not options.keys() <= OPTIONS
        ):
            return subprocess.Popen(command, **options)
        return ForkedProcess(self, program, **options)

    def ask(self, request: Mapping[str, object], *descriptors: int) -> Any:
        """Returns the program's answer; the caller has the lock."""
        if self._program is None:
            command = [sys.executable, "-m", __name__, str(self._theirs.fileno())]
            self._program = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[3],
                env={**self._environment, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[self._theirs.fileno()],
            )
            self._theirs.close()
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        return json.loads(self._control.recv(MESSAGE_BYTES_MAX))


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a forked program would not see, as it does not start."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(READ_AT_START) and name != SET_BY_PROGRAMS
    }


class ForkedProcess(subprocess.Popen[Any]):
    """A forked program; the fork server is its parent."""

    def __init__(self, server: ForkServer, command: Sequence[str], **options: Any) -> None:
        self._server = server
        self._request = {
            "command": command,
            "environment": dict(options.get("env") or os.environ),
            "directory": os.fspath(options.get("cwd") or Path.cwd()),
            "group": None if options.get("start_new_session") else os.getpgrp(),
        }
        super().__init__(command, **options)

    def _execute_child(self, *given: Any) -> None:
        """Forks instead; `given` has both ends of each stream's pipe, or -1."""
        ends = given[10:16]
        streams = (ends[0], ends[3], ends[5])
        inherited = [number if each == -1 else each for number, each in enumerate(streams)]
        with self._server.lock:
            self.pid = self._server.ask(self._request, *inherited)
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        with self._server.lock:
            if self.returncode is None:
                self.returncode = self._server.ask({"wait": self.pid})
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code at the process's end. Raises TimeoutExpired after seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(LOOK_SECONDS)
        return code


def serve(control: socket.socket) -> list[str]:
    """Forks a process for each request; returns its module and arguments in that process."""
    while True:
        data, streams, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 3)
        if not data:
            sys.exit()
        request = json.loads(data)
        if not streams:
            ended, status = os.waitpid(request["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        elif (answer := os.fork()) == 0:
            _prepare(request, streams)
            return [*request["command"]]
        for stream in streams:
            os.close(stream)
        control.send(json.dumps(answer).encode())


def _prepare(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Gives this process what its start would have given it."""
    if request["group"] is None:
        os.setsid()
    else:
        os.setpgid(0, request["group"])
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(streams[number], number)
        os.close(streams[number])
        setattr(sys, name, _renewed(getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))


def _renewed(stream: TextIOWrapper) -> TextIOWrapper:
    """Returns a standard stream as a start opens it."""
    raw = FileIO(stream.fileno(), stream.mode, closefd=False)
    raw.name = stream.name
    renewed = TextIOWrapper(
        BufferedReader(raw) if stream.mode == "r" else BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        newline="\n",
        line_buffering=stream is sys.stderr or raw.isatty(),
    )
    renewed.mode = stream.mode  # type: ignore[misc]
    return renewed


def warm_up() -> None:
    """Imports and makes what programs share."""
    for name in IMPORTED:
        importlib.import_module(name)
    # Two results that a process keeps; to make them takes longer than the rest of a start.
    importlib.import_module("rocketpy_broker.services.filters.parser").prepare()
    importlib.import_module("rocketpy_broker.services.hooks.chain").installed_hooks()
    # The libraries of all commands. The command line itself looks at its parent and environment.
    importlib.import_module(f"{COMMAND_LINE}.commands").imported()
    for name in [name for name in sys.modules if name.startswith(COMMAND_LINE)]:
        del sys.modules[name]
    # The garbage collections of the forks skip shared objects.
    gc.freeze()


def run(module: str) -> None:
    """Runs a module as a program, and ends the process.

    Its end is an interpreter's, except that it would copy all shared pages to free their objects.
    """
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        # The interpreter reports it in its own way.
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    # A Ctrl-C at the terminal is for the tests.
    os.setpgid(0, 0)
    warm_up()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        program, *sys.argv[1:] = serve(parent)
    run(program)

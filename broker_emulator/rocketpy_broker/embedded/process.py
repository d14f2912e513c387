"""Broker process of a LocalBroker: start, stop, and last log lines.

State: the process. It ends with the program that started it, because its input ends.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from weakref import WeakSet

from rocketpy_broker.client.calls.program_command import program_command
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.process_tuning import READY_PREFIX
from rocketpy_broker.store.files.durable import open_private

logger = logging.getLogger(__name__)
START_SECONDS_MAX = 60.0
STILL_STARTING_SECONDS = 5.0
STOP_SECONDS_MAX = 15.0
# After its time limit, a process without progress for STANDSTILL_SECONDS is given up.
STANDSTILL_SECONDS = 15.0
# Even with progress, a process is given up after TIME_LIMIT_FACTOR_MAX times its time limit.
TIME_LIMIT_FACTOR_MAX = 10
QUOTED_LINES_MAX = 20
QUOTED_BYTES_MAX = 8 << 10


class LocalBrokerError(BrokerError):
    """Error for a broker process that did not start or stop, does not run, or refused a call."""


@dataclass(frozen=True, slots=True)
class LocalTls:
    """TLS of a LocalBroker; files are in PEM form.

    Without `certificate` and `key` the broker makes a self-signed pair. `ca` verifies the
    certificate. With `client_ca`, each client that uses TLS needs a certificate that it signed.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    client_ca: Path | None = None

    def settings(self, port: int) -> dict[str, object]:
        """Returns the settings of the broker's process; `port` is the gRPC port for TLS."""
        files = (self.certificate, self.key, self.client_ca)
        return {"port": port, "files": [None if each is None else str(each) for each in files]}


@dataclass(frozen=True, slots=True)
class ProcessProgress:
    """Measures of a process's progress: its processor time and the bytes that it has logged."""

    processor_seconds: float = 0.0
    logged_bytes: int = 0


class ProgressTimeout:
    """The time limit for a process, which is extended while the process makes progress.

    A busy machine gives a process little processor time. So a process has `seconds_max` of wall
    time, and more while it makes progress. The wait ends when one of these is reached:
    - the process has used `seconds_max` of processor time;
    - it has made no progress for STANDSTILL_SECONDS, or `seconds_max` if that is less;
    - TIME_LIMIT_FACTOR_MAX times `seconds_max` is over.
    """

    def __init__(self, seconds_max: float, begin: ProcessProgress) -> None:
        self._seconds_max = seconds_max
        self._begin = self._last = begin
        self._moved_seconds = 0.0

    def is_over(self, waited_seconds: float, progress: ProcessProgress) -> bool:
        """True if the process's time is over, `waited_seconds` after the wait began."""
        if progress != self._last:
            self._last, self._moved_seconds = progress, waited_seconds
        if waited_seconds < self._seconds_max:
            return False
        standing_seconds = waited_seconds - self._moved_seconds
        worked_seconds = progress.processor_seconds - self._begin.processor_seconds
        return (
            standing_seconds >= min(self._seconds_max, STANDSTILL_SECONDS)
            or worked_seconds >= self._seconds_max
            or waited_seconds >= self._seconds_max * TIME_LIMIT_FACTOR_MAX
        )


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Time limit of a start on an idle machine, and the interval of `still starting` warnings."""

    seconds_max: float = START_SECONDS_MAX
    still_starting_seconds: float = STILL_STARTING_SECONDS

    def next_pause(self, waited_seconds: float) -> float:
        """Returns the seconds until the next warning or check of the time limit."""
        left = self.seconds_max - waited_seconds
        return min(self.still_starting_seconds, left if left > 0 else self.seconds_max)


class ReservedPort:
    """A free port of 127.0.0.1 that no other program is given until `close`.

    The port is bound without a listener. A broker, which sets SO_REUSEADDR, can listen there
    again and again; to other programs the system gives other ports.
    """

    def __init__(self) -> None:
        """Raises LocalBrokerError if the system has no free port or descriptor."""
        try:
            self._socket = socket.socket()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", 0))
        except OSError as error:
            raise LocalBrokerError(f"no port can be reserved for the broker: {error}") from error
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()


class BrokerProcess:
    """The process of a broker, from its start to its end."""

    def __init__(self, command: Sequence[str], log_path: Path, times: StartTimes) -> None:
        """Starts the process and waits until it serves.

        Raises LocalBrokerError with the last lines of its log.
        """
        self._log_path = log_path
        try:
            with open(log_path, "a", encoding="utf-8", opener=open_private) as log:
                self._log_begin = log.tell()
                # The broker has its own session: Ctrl-C at a terminal interrupts only the program.
                self._process = Popen(
                    command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            _running.add(self)
        except OSError as error:
            raise LocalBrokerError(f"the broker cannot be started: {error}") from error
        try:
            self._wait_ready(times)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def last_log_lines(self) -> str:
        """Returns the last lines of the log."""
        try:
            with self._log_path.open("rb") as log:
                end = log.seek(0, 2)
                log.seek(max(self._log_begin, end - QUOTED_BYTES_MAX))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError as error:
            return f"its log cannot be read: {error}"
        return "\n".join(lines[-QUOTED_LINES_MAX:]) or "it has logged nothing"

    def _progress(self) -> ProcessProgress:
        """Returns the progress of the process. A missing log counts as empty."""
        try:
            logged_bytes = self._log_path.stat().st_size - self._log_begin
        except OSError:
            logged_bytes = 0
        return ProcessProgress(processor_seconds(self.pid), logged_bytes)

    def _wait_ready(self, times: StartTimes) -> None:
        """Waits for the line that says the broker is ready. Raises LocalBrokerError."""
        assert self._process.stdout is not None
        clock = SystemClock()
        begin_ms = clock.monotonic_ms()
        waited, timeout = 0.0, ProgressTimeout(times.seconds_max, ProcessProgress())
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(times.next_pause(waited)):
                waited = (clock.monotonic_ms() - begin_ms) / 1000
                if timeout.is_over(waited, self._progress()):
                    raise LocalBrokerError(
                        f"the broker did not start within {waited:.0f} s and was killed; the end "
                        f"of its log: {self.last_log_lines()}"
                    )
                logger.warning(
                    "the broker is still starting after %.1f s: %s", waited, self.last_log_lines()
                )
            line = self._process.stdout.readline()
        if not line.startswith(READY_PREFIX):
            self.kill()
            raise LocalBrokerError(f"the broker did not start: {self.last_log_lines()}")

    def stop(self) -> None:
        """Stops the process cleanly with SIGTERM. Raises LocalBrokerError if that takes too long.

        The process has ended afterwards in any case.
        """
        try:
            self._process.terminate()
            self._wait_end()
        finally:
            self.kill()

    def _wait_end(self) -> None:
        clock = SystemClock()
        begin_ms = clock.monotonic_ms()
        timeout = ProgressTimeout(STOP_SECONDS_MAX, self._progress())
        while True:
            try:
                self._process.wait(STILL_STARTING_SECONDS)
                return
            except TimeoutExpired as error:
                waited = (clock.monotonic_ms() - begin_ms) / 1000
                if timeout.is_over(waited, self._progress()):
                    raise LocalBrokerError(
                        f"the broker did not stop within {waited:.0f} s and was killed"
                    ) from error

    def kill(self) -> None:
        """Kills the process, as a crash does."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def release(self) -> None:
        """Closes this process's copies of the pipes after a fork.

        The broker stops only when all copies of its input are closed.
        """
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process; 0 without /proc, or if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    # The process name before the last bracket may hold any byte; utime and stime are fields 14, 15.
    fields = stat.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_running: WeakSet[BrokerProcess] = WeakSet()


def _release_all() -> None:
    for process in list(_running):
        process.release()


os.register_at_fork(after_in_child=_release_all)


def broker_command(settings: Mapping[str, object]) -> list[str]:
    """Returns the command that starts a broker with this program's Python interpreter.

    The broker stops when its input ends, which it does with this process.
    """
    return [*program_command("rocketpy_broker.broker_program"), json.dumps(settings)]

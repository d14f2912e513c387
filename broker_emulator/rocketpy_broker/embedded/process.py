"""The process of a LocalBroker: started, waited for, and quoted when it fails.

State: the process; it ends with the program that started it, for its input ends then.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.process_tuning import READY_PREFIX
from rocketpy_broker.store.files.durable import open_private

logger = logging.getLogger(__name__)
START_SECONDS_MAX = 60.0
STILL_STARTING_SECONDS = 5.0
STOP_SECONDS_MAX = 15.0
# A process that does nothing for so long is not waited for any longer, when its time is over.
STANDSTILL_SECONDS = 15.0
# However it gets on, it is waited for so many times as long as it may take.
STRETCH_MAX = 10
_PORT = re.compile(r":([0-9]+) ")
_HTTP = re.compile(r" http=\S*:([0-9]+)$")
QUOTED_LINES_MAX = 20
QUOTED_BYTES_MAX = 8 << 10


class LocalBrokerError(BrokerError):
    """The broker process did not start, did not stop, does not run, or refused an order."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What tells that a process gets on: its processor time, and how much it has logged."""

    processor_seconds: float = 0.0
    logged_bytes: int = 0


class Patience:
    """Whether a process is still to be waited for.

    A busy machine gives it little processor time. So it has its time and, while it gets on, as much
    again and again: until it has had so much of the processor, stands still, or `STRETCH_MAX`.
    """

    def __init__(self, seconds_max: float, begin: Progress) -> None:
        self._seconds_max = seconds_max
        self._begin = self._last = begin
        self._moved_seconds = 0.0

    def is_over(self, waited_seconds: float, progress: Progress) -> bool:
        """True if it has had its time, so long after it was begun to wait."""
        if progress != self._last:
            self._last, self._moved_seconds = progress, waited_seconds
        if waited_seconds < self._seconds_max:
            return False
        standing_seconds = waited_seconds - self._moved_seconds
        worked_seconds = progress.processor_seconds - self._begin.processor_seconds
        return (
            standing_seconds >= min(self._seconds_max, STANDSTILL_SECONDS)
            or worked_seconds >= self._seconds_max
            or waited_seconds >= self._seconds_max * STRETCH_MAX
        )


@dataclass(frozen=True, slots=True)
class StartTimes:
    """How long a start may take on an idle machine, and after which times it is said to go on."""

    seconds_max: float = START_SECONDS_MAX
    still_starting_seconds: float = STILL_STARTING_SECONDS

    def next_pause(self, waited_seconds: float) -> float:
        """How long to wait until something is to be said, or looked at."""
        left = self.seconds_max - waited_seconds
        return min(self.still_starting_seconds, left if left > 0 else self.seconds_max)


class BrokerProcess:
    """A running broker; `port` is where it serves, `http_port` where it serves HTTP, if it does."""

    def __init__(self, command: Sequence[str], log_path: Path, times: StartTimes) -> None:
        """Starts and wait until it serves. Raises LocalBrokerError with the process's words."""
        self._log_path = log_path
        try:
            with open(log_path, "a", encoding="utf-8", opener=open_private) as log:
                self._log_begin = log.tell()
                # In a session of its own: Ctrl-C at a terminal interrupts the program alone.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            _running.add(self)
        except OSError as error:
            raise LocalBrokerError(f"the broker cannot be started: {error}") from error
        try:
            self.port, self.http_port = self._wait_ready(times)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Returns the last lines that it has logged."""
        try:
            with self._log_path.open("rb") as log:
                end = log.seek(0, 2)
                log.seek(max(self._log_begin, end - QUOTED_BYTES_MAX))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError as error:
            return f"its log cannot be read: {error}"
        return "\n".join(lines[-QUOTED_LINES_MAX:]) or "it has logged nothing"

    def _progress(self) -> Progress:
        """How far it has come. A log that is gone has no bytes."""
        try:
            logged_bytes = self._log_path.stat().st_size - self._log_begin
        except OSError:
            logged_bytes = 0
        return Progress(processor_seconds(self.pid), logged_bytes)

    def _wait_ready(self, times: StartTimes) -> tuple[int, int | None]:
        """Returns the ports of the line that says so, of gRPC and HTTP. Raises LocalBrokerError."""
        assert self._process.stdout is not None
        clock = SystemClock()
        begin_ms = clock.monotonic_ms()
        waited, patience = 0.0, Patience(times.seconds_max, Progress())
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(times.next_pause(waited)):
                waited = (clock.monotonic_ms() - begin_ms) / 1000
                if patience.is_over(waited, self._progress()):
                    raise LocalBrokerError(
                        f"the broker did not start within {waited:.0f} s and was killed; "
                        f"its last words: {self.last_words()}"
                    )
                logger.warning(
                    "the broker is still starting after %.1f s: %s", waited, self.last_words()
                )
            line = self._process.stdout.readline()
        if not line.startswith(READY_PREFIX):
            self.kill()
            raise LocalBrokerError(f"the broker did not start: {self.last_words()}")
        http = _HTTP.search(line)
        return int(_PORT.findall(line)[0]), None if http is None else int(http[1])

    def stop(self) -> None:
        """Stops cleanly, as SIGTERM does. Raises LocalBrokerError if that takes too long.

        The process has ended afterwards, whatever is raised.
        """
        try:
            self._process.terminate()
            self._wait_end()
        finally:
            self.kill()

    def _wait_end(self) -> None:
        clock = SystemClock()
        begin_ms = clock.monotonic_ms()
        patience = Patience(STOP_SECONDS_MAX, self._progress())
        while True:
            try:
                self._process.wait(STILL_STARTING_SECONDS)
                return
            except subprocess.TimeoutExpired as error:
                waited = (clock.monotonic_ms() - begin_ms) / 1000
                if patience.is_over(waited, self._progress()):
                    raise LocalBrokerError(
                        f"the broker did not stop within {waited:.0f} s and was killed"
                    ) from error

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def release(self) -> None:
        """In a forked process: close its copies of the pipes, whose end the broker waits for."""
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def processor_seconds(pid: int) -> float:
    """What a process has had of the processor; 0 where nothing tells, or it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    # The name before the last bracket may hold anything; utime and stime are fields 14 and 15.
    fields = stat.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_running: WeakSet[BrokerProcess] = WeakSet()


def _let_all_go() -> None:
    for process in list(_running):
        process.release()


os.register_at_fork(after_in_child=_let_all_go)


def broker_command(*options: str) -> list[str]:
    """`rocketpy broker` with the interpreter of this program; its input ends with this process."""
    return [sys.executable, "-m", "rocketpy_broker", "broker", *options, "--stop-at-eof"]

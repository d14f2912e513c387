"""A RocketMQ server in its own process.

Its folder holds its properties, its store, its logs and its output. The folder outlives the
process, so a killed server starts again from its old state. The process always ends with the tests'
process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.interop.rocketmq import class_path_of, home_options, java_program
from tests.support.time_limits import WAIT_SECONDS_MAX

# For a JVM that lives for minutes among several JVMs, on two cores.
JVM_OPTIONS = (
    *("-Xms64m", "-Xmx192m"),
    # A broker of 5.x takes 4 MiB of it for each thread that stores messages, and fails without.
    "-XX:MaxDirectMemorySize=1g",
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    # 4.9 unmaps its files through the JDK's internals.
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
PAUSE_SECONDS = 0.05
LOG_END_BYTES = 3000
# Logs that repeat the same lines every second.
CHATTER = frozenset({"watermark.log", "broker_traffic.log"})
STOP_SECONDS_MAX = WAIT_SECONDS_MAX
_LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss} %p %c{1} %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
# Runs the given command, which is killed when its parent ends.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment of RocketMQ's programs that run in a folder."""
    # The suite's own options are for Spark's JVMs.
    strange = {"JDK_JAVA_OPTIONS", "NAMESRV_ADDR"}
    usual = {name: value for name, value in os.environ.items() if name not in strange}
    return {**usual, "ROCKETMQ_HOME": str(folder)}


def configure_logs(folder: Path) -> None:
    """Configures 4.9's programs in a folder to log warnings; they do not start without."""
    for program in ("broker", "tools"):
        path = folder / "conf" / f"logback_{program}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_LOGBACK)


class Command(Protocol):
    """A program that a server process runs."""

    def command(self, folder: Path) -> list[str]:
        """Returns the whole command line."""


@dataclass(frozen=True)
class Program:
    """A main class of a version, with its arguments and its JVM's options.

    `class_path` is for a program that is not among the version's jars.
    """

    version: str
    main_class: str
    arguments: Sequence[str] = ()
    system_properties: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = JVM_OPTIONS
    class_path: str | None = None

    def command(self, folder: Path) -> list[str]:
        """Returns the whole command line; the folder is the JVM's home, where logs go."""
        more = [f"-D{name}={value}" for name, value in self.system_properties.items()]
        path = self.class_path or class_path_of(self.version)
        jvm = [java_program(), *self.jvm_options, *home_options(folder), *more, "-cp", path]
        return [*jvm, self.main_class, *self.arguments]

    def run(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Runs it to its end; asserts that it succeeds."""
        done = subprocess.run(
            self.command(folder),
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done


class ServerProcess:
    """A server that is not started yet; `name` is for log texts."""

    def __init__(self, name: str, folder: Path, program: Command) -> None:
        self.name = name
        self.folder = folder
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_running(self) -> bool:
        """True if the process runs; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    def start(self) -> None:
        """Starts it, for the first time or again; it serves some seconds later."""
        assert not self.is_running, self.name
        with (self.folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *self._program.command(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment(self.folder),
            )

    def stop(self) -> None:
        """Sends SIGTERM and waits for the end: 13 seconds and more, for a broker."""
        self._running().terminate()
        self._running().wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """Sends SIGKILL and waits for the end; also for a frozen or an ended process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)

    def freeze(self) -> None:
        """Stops all its threads: its connections stay open, and nothing answers.

        On a busy machine its other threads run on until one has taken the signal.
        """
        self._running().send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Sends SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def log_ends(self) -> str:
        """Returns the last lines of its output and of each of its logs."""
        logs = [self.folder / "output.log", *sorted((self.folder / "logs").rglob("*.log"))]
        told = [path for path in logs if path.name not in CHATTER and path.stat().st_size > 0]
        ends = [f"--- {self.name}: {path}\n{_end_of(path)}" for path in told]
        return "\n".join(ends)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, self.name
        assert self._process.poll() is None, f"{self.name} has ended\n{self.log_ends()}"
        return self._process


def until(is_so: Callable[[], bool], what: str, servers: Sequence[ServerProcess]) -> None:
    """Waits until the condition holds.

    Fails with the ends of the servers' logs when a server has ended, or after WAIT_SECONDS_MAX. A
    server that is not up yet refuses connections: that is no error.
    """
    end = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        with contextlib.suppress(OSError):
            if is_so():
                return
        logs = [server for server in servers if not server.is_running]
        if logs or time.monotonic() > end:
            texts = "\n".join(server.log_ends() for server in logs or servers)
            ended = f", and {', '.join(server.name for server in logs)} ended" if logs else ""
            raise AssertionError(f"not {what}{ended}\n{texts}")
        time.sleep(PAUSE_SECONDS)


def _end_of(path: Path) -> str:
    return path.read_bytes()[-LOG_END_BYTES:].decode(errors="replace")

"""A program of `make interop` in its own process. Requests and answers are lines of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.support.time_limits import WAIT_SECONDS_MAX

if TYPE_CHECKING:
    from typing_extensions import Self


class RocketMQError(Exception):
    """RocketMQ's code refused a request; the text is its exception."""


class ProcessEndedError(Exception):
    """RocketMQ's process ended before it answered."""


class Driver:
    """A process of RocketMQ's code; its output goes to `log`."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env=environment,
                cwd=folder,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Sends a request and waits for its answer. Raises RocketMQError, ProcessEndedError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise ProcessEndedError(do)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RocketMQError(answer["error"])
        return answer

    def kill_process(self) -> None:
        """Sends SIGKILL, from any thread: files stay as they are."""
        self._process.kill()

    def kill(self) -> None:
        """Sends SIGKILL and waits for the end."""
        self.kill_process()
        self.end()

    def end(self) -> None:
        """Ends the process. An open store is then a crashed one."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(WAIT_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

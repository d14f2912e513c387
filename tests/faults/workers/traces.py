"""strace as a source of faults: it attaches to a worker and lets its n-th call fail."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.time_limits import WAIT_SECONDS_MAX

END_SECONDS_MAX = WAIT_SECONDS_MAX
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)(.*)$")
PATH = re.compile(r"<([^>]*)>")


@dataclass(frozen=True, slots=True)
class Call:
    """One traced call. `path` is that of its descriptor, `opened` that of the one it returns."""

    name: str
    arguments: str
    result: int
    error: str
    injected: bool
    opened: str

    @property
    def path(self) -> str:
        found = PATH.search(self.arguments)
        return found[1] if found else ""


def missing() -> str | None:
    """Returns the reason why tracing is impossible here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-o", "/dev/null", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"strace does not work: {done.stderr.strip()}" if done.returncode else None


@contextmanager
def traced(pid: int, calls: str, inject: str | None, output: Path) -> Iterator[None]:
    """Traces `calls` of a waiting process and all its threads; it must end in the block."""
    command = ["strace", "-f", "-p", str(pid), "-y", "-s", "0", "-o", str(output)]
    command += ["-e", f"trace={calls}", "-e", "signal=none"]
    if inject is not None:
        command += ["-e", f"inject={inject}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        words = process.stderr.readline()
        assert "attached" in words, words
        yield
        process.communicate(timeout=END_SECONDS_MAX)


def calls_in(output: Path) -> list[Call]:
    """Returns the calls in strace's output, in order, without calls in two halves."""
    found = []
    for line in output.read_text(encoding="utf-8", errors="replace").splitlines():
        match = CALL.match(line)
        if match:
            name, arguments, result, rest = match.groups()
            error = rest.split(maxsplit=1)[0] if rest.strip() else ""
            opened = PATH.match(rest)
            injected = "(INJECTED)" in rest
            path = opened[1] if opened else ""
            found.append(Call(name, arguments, int(result), error, injected, path))
    return found

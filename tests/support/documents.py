"""The documents and their fenced blocks.

After a fence's language, a note says what tests do with the block. `notest: why` leaves it out,
`test` runs it by pytest, `continued` runs it after the block before it, as one program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

TOP = Path(__file__).parents[2]
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("docker/*.md")])
LANGUAGES = {"python": "python", "sh": "sh", "bash": "sh", "shell": "sh"}
NOTES = ("", "test", "continued")
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTEST = "notest:"


@dataclass(frozen=True)
class Block:
    """A fenced block, and the note after its language."""

    path: Path
    line: int
    language: str
    note: str
    text: str

    @property
    def name(self) -> str:
        """Name for readers and for pytest."""
        return f"{self.path.relative_to(TOP)}:{self.line}"

    @property
    def reason(self) -> str:
        """Reason why no test runs it; empty if a test does."""
        return self.note.removeprefix(_NOTEST).strip() if self.note.startswith(_NOTEST) else ""


def blocks() -> list[Block]:
    """Returns every fenced block of every document."""
    return [block for path in DOCUMENTS for block in blocks_of(path, path.read_text("utf-8"))]


def blocks_of(path: Path, text: str) -> Iterator[Block]:
    """Yields the fenced blocks of one document."""
    for fence in _FENCE.finditer(text):
        language, _, note = fence[1].partition(" ")
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(path, line, LANGUAGES.get(language, language), note.strip(), fence[2])


def runnable(language: str, found: list[Block] | None = None) -> list[Block]:
    """Returns a language's blocks that tests run, each joined with the blocks that continue it."""
    joined: list[Block] = []
    for block in blocks() if found is None else found:
        if block.language != language or block.reason:
            continue
        if block.note == "continued":
            joined[-1] = replace(joined[-1], text=joined[-1].text + block.text)
        else:
            joined.append(block)
    return joined


def programs() -> list[Block]:
    """Returns the Python programs."""
    return [block for block in runnable("python") if block.note != "test"]


def pasted_tests() -> list[Block]:
    """Returns the Python blocks that pytest runs."""
    return [block for block in runnable("python") if block.note == "test"]

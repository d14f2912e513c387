"""The documents and what stands in their fences.

Behind a fence's language may stand what tests do with it: `notest: why` leaves it out, `test` gives
it to pytest, `continued` runs it behind the block before it, as one program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

TOP = Path(__file__).parents[1]
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("docker/*.md")])
LANGUAGES = {"python": "python", "sh": "sh", "bash": "sh", "shell": "sh"}
NOTES = ("", "test", "continued")
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTEST = "notest:"


@dataclass(frozen=True)
class Block:
    """A fenced block, and what stands behind its language."""

    path: Path
    line: int
    language: str
    note: str
    text: str

    @property
    def name(self) -> str:
        """For people and for pytest."""
        return f"{self.path.relative_to(TOP)}:{self.line}"

    @property
    def reason(self) -> str:
        """Why no test runs it; empty for one that is run."""
        return self.note.removeprefix(_NOTEST).strip() if self.note.startswith(_NOTEST) else ""


def blocks() -> list[Block]:
    """Every fenced block of every document."""
    return [block for path in DOCUMENTS for block in blocks_of(path, path.read_text("utf-8"))]


def blocks_of(path: Path, text: str) -> Iterator[Block]:
    """The fenced blocks of one document."""
    for fence in _FENCE.finditer(text):
        language, _, note = fence[1].partition(" ")
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(path, line, LANGUAGES.get(language, language), note.strip(), fence[2])


def runnable(language: str, found: list[Block] | None = None) -> list[Block]:
    """What tests have to run of a language: blocks, with those that continue them."""
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
    """Python that runs by itself."""
    return [block for block in runnable("python") if block.note != "test"]


def pasted_tests() -> list[Block]:
    """Python that pytest runs."""
    return [block for block in runnable("python") if block.note == "test"]

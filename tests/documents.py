"""The documents and what stands in their fences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[1]
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("docker/*.md")])
LANGUAGES = {"python": "python", "sh": "sh", "bash": "sh", "shell": "sh"}
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block; `reason` says why no test runs it, and is empty for one that is run."""

    path: Path
    line: int
    language: str
    reason: str
    text: str

    @property
    def name(self) -> str:
        """For people and for pytest."""
        return f"{self.path.relative_to(TOP)}:{self.line}"


def blocks() -> list[Block]:
    """Every fenced block of every document."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for fence in _FENCE.finditer(text):
            language, _, note = fence[1].partition(" ")
            line = text.count("\n", 0, fence.start()) + 1
            reason = note.removeprefix("notest:").strip()
            found.append(Block(path, line, LANGUAGES.get(language, language), reason, fence[2]))
    return found


def runnable(language: str) -> list[Block]:
    """The blocks of a language that a test has to run."""
    return [block for block in blocks() if block.language == language and not block.reason]

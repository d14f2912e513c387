"""JSON configuration files with a backup.

A crash while saving leaves the old or the new content; a file that cannot be read is answered by
its backup. Source: spec/storage.md section 1 (`.bak`) and section 11.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.store import files


class ConfigFile:
    """One file below `config/`, holding one JSON object."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, object] | None:
        """The object, from the backup where the file itself is missing or broken.

        None where neither is there. Raises ConfigFileError where neither can be read.
        """
        problem: str | None = None
        for path in (self.path, self.path.with_name(self.path.name + ".bak")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problem = problem or str(error)
                continue
            if isinstance(content, dict):
                return content
            problem = problem or "it holds no JSON object"
        if problem is not None:
            raise ConfigFileError(self.path, problem)
        return None

    def save(self, content: dict[str, object]) -> None:
        """Replace the content. Raises OSError; the old content is then still there."""
        files.replace_text(self.path, json.dumps(content, indent="\t", ensure_ascii=False))

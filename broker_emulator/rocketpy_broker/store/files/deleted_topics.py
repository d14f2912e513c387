"""The file `config/deletedTopics.json`: which records of the log belong to deleted topics.

Maps: the name of a deleted topic to the log's end at that moment. Records of that topic below the
mark belong to the deleted topic: recovery must not bring them back into a topic that was created
again under the same name, whose offsets begin at 0. Checksummed by a CRC of its content; a crash
leaves the old or the new content, or the old one as `.bak`. A mark goes when the log has no record
below it any more. RocketMQ keeps no such marks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_proto.record.crc import body_crc


class DeletedTopics:
    """The marks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks: dict[str, int] = {}

    def load(self) -> None:
        """Reads the file, or its backup where it is missing. Raises StoreDirectoryError."""
        backup = self._path.with_name(self._path.name + ".bak")
        path = self._path if self._path.exists() else backup
        if not path.exists():
            return
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            marks = {str(topic): int(mark) for topic, mark in content["topics"].items()}
            problem = "" if content["crc"] == _crc_of(marks) else "its CRC is of another content"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            raise StoreDirectoryError(
                path,
                f"cannot be read ({problem})",
                "put back its .bak; without the file, messages of deleted topics may come back",
            )
        self._marks = marks

    @property
    def marks(self) -> Mapping[str, int]:
        """The log's end, as of its deletion, of each deleted topic."""
        return self._marks

    def below(self, topic: str) -> int:
        """Physical offset below which records of `topic` are deleted ones; -1 for none."""
        return self._marks.get(topic, -1)

    def mark(self, topic: str, log_end: int, over: Collection[str] = ()) -> None:
        """From now on the topic's records below `log_end` are deleted. Raises OSError.

        Marks of topics that are `over` go.
        """
        kept = {name: mark for name, mark in self._marks.items() if name not in over}
        self._save({**kept, topic: log_end})

    def cut(self, log_end: int) -> None:
        """Let no mark lie behind the log's end, as after a power cut. Raises OSError.

        A topic of that name may have been made again, and its records to come are not deleted.
        """
        marks = {topic: min(mark, log_end) for topic, mark in self._marks.items()}
        if marks != self._marks:
            self._save(marks)

    def _save(self, marks: dict[str, int]) -> None:
        content = {"topics": marks, "crc": _crc_of(marks)}
        durable.replace_text(self._path, json.dumps(content, indent="\t", sort_keys=True))
        self._marks = marks


def _crc_of(marks: dict[str, int]) -> int:
    return body_crc(json.dumps(marks, sort_keys=True).encode())

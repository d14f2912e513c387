"""The files `config/deletedTopics.json` and `config/emptiedTopics.json`: marks of topics.

The first maps the name of a deleted topic to the log's end at its deletion. Records of that topic
below the mark belong to the deleted topic. Recovery must not add them to a recreated topic, where
offsets start at 0. The second maps the name of an emptied topic to the log's end at that time. Its
queues keep their units, and begin with newer records. Each file holds a CRC of its content. A crash
leaves the old or the new content, or the old one as `.bak`. A mark is removed when the log has no
records below it. RocketMQ has no such marks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_proto.record.crc import body_crc


class TopicMarks:
    """The marks of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marks: dict[str, int] = {}

    def load(self) -> None:
        """Reads the file, or its backup if it is missing. Raises StoreDirectoryError."""
        backup = self.path.with_name(self.path.name + ".bak")
        path = self.path if self.path.exists() else backup
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
                "restore it from its .bak; without the file, messages of its topics may return",
            )
        self._marks = marks

    @property
    def marks(self) -> Mapping[str, int]:
        """The log's end at the removal, of each topic."""
        return self._marks

    def below(self, topic: str) -> int:
        """Returns the physical offset below which records of `topic` are removed; -1 for none."""
        return self._marks.get(topic, -1)

    def mark(self, topic: str, log_end: int, over: Collection[str] = ()) -> None:
        """Marks the topic's records below `log_end` as removed. Raises OSError.

        Removes the marks of the topics in `over`.
        """
        kept = {name: mark for name, mark in self._marks.items() if name not in over}
        self._save({**kept, topic: log_end})

    def raise_all(self, marks: Mapping[str, int]) -> None:
        """Increases the marks of these topics that are lower. Raises OSError."""
        higher = {topic: max(mark, self.below(topic)) for topic, mark in marks.items()}
        if any(self.below(topic) < mark for topic, mark in higher.items()):
            self._save({**self._marks, **higher})

    def replace_some(self, marks: Mapping[str, int]) -> None:
        """Replaces the marks of these topics; -1 removes a mark. Raises OSError."""
        changed = {**self._marks, **marks}
        self._save({topic: mark for topic, mark in changed.items() if mark >= 0})

    def cut(self, log_end: int) -> None:
        """Limits all marks to the log's end, for example after a power cut. Raises OSError.

        A topic with that name may have been recreated; its future records are not deleted.
        """
        marks = {topic: min(mark, log_end) for topic, mark in self._marks.items()}
        if marks != self._marks:
            self._save(marks)

    def _save(self, marks: dict[str, int]) -> None:
        content = {"topics": marks, "crc": _crc_of(marks)}
        durable.replace_text(self.path, json.dumps(content, indent="\t", sort_keys=True))
        self._marks = marks


def _crc_of(marks: dict[str, int]) -> int:
    return body_crc(json.dumps(marks, sort_keys=True).encode())

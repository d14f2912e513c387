"""The progress of consumer groups: `config/consumerOffset.json`.

Offsets are kept in memory and saved every few seconds and at a clean stop; a crash loses the
last seconds of progress, never a message. For Spark the checkpoint is the truth, and this table
what every other tool sees of it.
Source: ConsumerOffsetManager, spec/storage.md section 11.3; rows B05, C10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketpy_broker.clock import Clock
from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_file import ConfigFile

NOT_COMMITTED = -1
SEPARATOR = "@"


class ConsumerOffsetManager:
    """topic@group -> queue id -> next offset to consume."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = ConfigFile(folder / "consumerOffset.json")
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._counter = 0
        self._changed = False

    def load(self) -> None:
        """Read the file, if there is one. Raises ConfigFileError."""
        content = self._file.load()
        if content is None:
            return
        try:
            table: Any = content.get("offsetTable", {})
            version: Any = content.get("dataVersion", {})
            self._counter = int(version.get("counter", 0))
            self._table = {
                key: {int(queue_id): int(offset) for queue_id, offset in queues.items()}
                for key, queues in table.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigFileError(self._file.path, f"unexpected content: {error}") from error

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset of a queue."""
        self._table.setdefault(topic + SEPARATOR + group, {})[queue_id] = offset
        self._changed = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset of a queue, or NOT_COMMITTED."""
        return self._table.get(topic + SEPARATOR + group, {}).get(queue_id, NOT_COMMITTED)

    def delete_topic(self, topic: str) -> None:
        """Forget every group's progress in a topic that is no more."""
        for key in [key for key in self._table if key.rpartition(SEPARATOR)[0] == topic]:
            del self._table[key]
            self._changed = True

    def persist(self) -> None:
        """Save what has changed. Raises OSError; it is then tried again at the next call."""
        if not self._changed:
            return
        counter = self._counter + 1
        self._file.save(
            {
                "dataVersion": {
                    "counter": counter,
                    "stateVersion": 0,
                    "timestamp": self._clock.now_ms(),
                },
                "offsetTable": {
                    key: {str(queue_id): queues[queue_id] for queue_id in sorted(queues)}
                    for key, queues in sorted(self._table.items())
                },
            }
        )
        self._counter, self._changed = counter, False

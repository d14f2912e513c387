"""The progress of consumer groups: `config/consumerOffset.json`.

Offsets are kept in memory and saved every few seconds and at a clean stop; a crash loses the
last seconds of progress, never a message. For Spark the checkpoint is the truth, and this table
what every other tool sees of it. RocketMQ's files are read as they are; `groupTopicMap`, which it
derives from the table, is neither read nor written.
Source: ConsumerOffsetManager, spec/storage.md section 11.3; rows B05, C10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpy_broker.clock import Clock
from rocketpy_broker.services.config_file import ConfigFile
from rocketpy_broker.services.data_version import DataVersion
from rocketpy_broker.services.json_fields import as_int, as_long, as_object

NOT_COMMITTED = -1
SEPARATOR = "@"
DATA_VERSION = "dataVersion"
TABLE = "offsetTable"
DERIVED = "groupTopicMap"
# consumerOffsetUpdateVersionStep: so many commits make one change of the data version.
COMMITS_PER_VERSION = 500


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What consumerOffset.json holds. RocketMQ 4 writes no data version."""

    version: DataVersion
    table: dict[str, dict[int, int]]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> _Loaded:
        return cls(
            DataVersion.from_json(content.get(DATA_VERSION)),
            {
                key: {as_int(queue_id): as_long(offset) for queue_id, offset in entry.items()}
                for key, entry in (
                    (key, as_object(queues))
                    for key, queues in as_object(content.get(TABLE)).items()
                )
            },
        )


class ConsumerOffsetManager:
    """topic@group -> queue id -> next offset to consume."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = ConfigFile(folder / "consumerOffset.json", (DATA_VERSION, TABLE, DERIVED))
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._version = DataVersion()
        self._commits = 0
        self._changed = False

    def load(self) -> None:
        """Read the file, if there is one. Raises ConfigFileError."""
        loaded = self._file.load(_Loaded.from_json)
        if loaded is not None:
            self._table, self._version = loaded.table, loaded.version

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset of a queue."""
        self._table.setdefault(topic + SEPARATOR + group, {})[queue_id] = offset
        self._changed = True
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self._version = self._version.next(self._clock.now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset of a queue, or NOT_COMMITTED."""
        return self._table.get(topic + SEPARATOR + group, {}).get(queue_id, NOT_COMMITTED)

    def delete_topic(self, topic: str) -> None:
        """Forget every group's progress in a topic that is no more."""
        self._delete([key for key in self._table if key.rpartition(SEPARATOR)[0] == topic])

    def delete_group(self, group: str) -> None:
        """Forget the progress of a group that is no more."""
        self._delete([key for key in self._table if key.rpartition(SEPARATOR)[2] == group])

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
        if keys:
            self._version = self._version.next(self._clock.now_ms())
            self._changed = True

    def persist(self) -> None:
        """Save what has changed. Raises OSError; it is then tried again at the next call."""
        if not self._changed:
            return
        table = {
            key: {str(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in self._table.items()
        }
        self._file.save({DATA_VERSION: self._version.to_json(), TABLE: table})
        self._changed = False

"""DataVersion of a configuration table: change count and last change time.

It is part of the table's own file, so after a crash it is as old as the table.
Source: DataVersion, docs/design/storage.md section 11.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rocketpy_broker.services.config_files.json_fields import (
    JsonFields,
    as_long,
)
from rocketpy_proto.remoting.bodies import configs

# The field of a file.
DATA_VERSION = "dataVersion"
_FIELDS = JsonFields(
    ("counter", "counter", as_long),
    ("stateVersion", "state_version", as_long),
    ("timestamp", "timestamp_ms", as_long),
)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of one table; `timestamp_ms` since 1970. RocketMQ 4 has no `state_version`.

    `extra` holds fields that this broker does not know.
    """

    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)

    def next(self, now_ms: int) -> DataVersion:
        """Returns the version after one more change."""
        return replace(self, counter=self.counter + 1, timestamp_ms=now_ms)

    def to_json(self) -> dict[str, object]:
        """Returns the value of `dataVersion` in a file."""
        return {**self.extra, **_FIELDS.encode(self)}

    def body(self) -> configs.DataVersion:
        """Returns the version as RocketMQ's clients and name servers read it."""
        return configs.DataVersion(self.counter, self.timestamp_ms, self.state_version)

    @classmethod
    def from_json(cls, entry: object) -> DataVersion:
        """Returns the version from a file's `dataVersion`, which may be None. Raises ValueError."""
        return cls(**_FIELDS.decode(entry))

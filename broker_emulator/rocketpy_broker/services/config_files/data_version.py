"""DataVersion of a configuration table in the table's own file.

After a crash it is as old as the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketpy_broker.services.config_files.json_fields import JsonFields
from rocketpy_proto.model.configs import NO_VERSION, DataVersion

# The field of a table's file.
DATA_VERSION = "dataVersion"
_FIELDS = JsonFields(DataVersion)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The version of one table; `extra` holds the fields of the file unknown to this broker."""

    value: DataVersion = NO_VERSION
    extra: Mapping[str, object] = field(default_factory=dict)

    def next(self, now_ms: int) -> FileVersion:
        """Returns the version after one more change."""
        return FileVersion(self.value.next(now_ms), self.extra)

    def to_json(self) -> dict[str, object]:
        """Returns the value of `dataVersion` in a file."""
        return _FIELDS.encode(self.value, self.extra)

    @classmethod
    def from_json(cls, entry: object) -> FileVersion:
        """Returns the version from a file's `dataVersion`, which may be None. Raises ValueError."""
        return cls(*_FIELDS.decode(entry))

"""Tables of offsets, topic@group -> queue id -> offset, and their JSON.

There is no index by topic or group: it would take 200 bytes an entry for rare calls.

Source: ConsumerOffsetManager, docs/design/storage.md section 11.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from rocketpy_broker.services.config_files.json_fields import as_int, as_long, as_object
from rocketpy_broker.services.config_files.json_text import ENTRY_LINE, field_text
from rocketpy_broker.store.values import QueueBounds, QueueKey

SEPARATOR = "@"


class OffsetTable(dict[str, dict[int, int]]):
    """Entries topic@group -> queue id -> offset; a caller may change only what `own` returns.

    The values are plain dictionaries of integers, which garbage collection skips.
    """

    def __init__(self, entries: Mapping[str, dict[int, int]] = MappingProxyType({})) -> None:
        super().__init__(entries)
        self._own: set[str] = set()

    @classmethod
    def from_json(cls, content: object) -> OffsetTable:
        """Returns the table of a file. Raises ValueError."""
        return cls(
            {
                key: {as_int(queue_id): as_long(offset) for queue_id, offset in entry.items()}
                for key, queues in as_object(content).items()
                for entry in [as_object(queues)]
            }
        )

    def own(self, key: str) -> dict[int, int]:
        """Returns an entry, created if missing; the first call after a snapshot copies it."""
        if key not in self._own or key not in self:
            self._own.add(key)
            self[key] = dict(self.get(key, ()))
        return self[key]

    def snapshot(self) -> Iterator[bytes]:
        """Returns the texts of the entries as they are now; any thread may iterate."""
        self._own = set()
        return _texts_of(self.copy())


def _texts_of(entries: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
    for key in sorted(entries):
        queues = {str(queue_id): offset for queue_id, offset in entries[key].items()}
        yield field_text(key, queues, ENTRY_LINE)


def passed_ends(
    topic: str, queues: Mapping[int, int], range_of: Callable[[QueueKey], QueueBounds]
) -> dict[int, int]:
    """Returns the ends of the queues that end before the entry's offset."""
    ends = {each: range_of(QueueKey(topic, each)).max_offset for each in queues}
    return {each: end for each, end in ends.items() if queues[each] > end}

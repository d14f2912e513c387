"""Tables of offsets, topic@group -> queue id -> offset, and their JSON.

Source: ConsumerOffsetManager, docs/design/storage.md section 11.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketpy_broker.services.config_files.json_fields import as_int, as_long, as_object
from rocketpy_broker.store.values import QueueKey, QueueRange

SEPARATOR = "@"


def decode_table(content: object) -> dict[str, dict[int, int]]:
    """Returns the table (topic@group -> queue id -> offset) of a file. Raises ValueError."""
    return {
        key: {as_int(queue_id): as_long(offset) for queue_id, offset in entry.items()}
        for key, entry in ((key, as_object(queues)) for key, queues in as_object(content).items())
    }


def encode_queues(queues: Mapping[int, int]) -> object:
    """Returns the JSON of one entry."""
    return {str(queue_id): offset for queue_id, offset in queues.items()}


def passed_ends(
    topic: str, queues: Mapping[int, int], range_of: Callable[[QueueKey], QueueRange]
) -> dict[int, int]:
    """Returns the ends of the queues that end before the entry's offset."""
    ends = {each: range_of(QueueKey(topic, each)).max_offset for each in queues}
    return {each: end for each, end in ends.items() if queues[each] > end}

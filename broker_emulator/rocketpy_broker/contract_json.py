"""JSON of the contract's messages.

The commands' `--json` and the HTTP API show it. A key is the field's name in camel case; `KEYS` has
the exceptions. A time is a text in UTC under its name without the unit. All fields are present: an
unset field, an unknown time and the enums' UNSPECIFIED are null. Statuses and records are left out:
commands and API show them in other forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

# A FieldDescriptor; protobuf's stubs have two classes of this name.
Field: TypeAlias = Any
KEYS: Mapping[str, str] = {
    "GroupSummary.member_count": "members",
    "GroupTopic.queue_count": "queues",
    "GroupTopic.committed_queue_count": "committedQueues",
    "GetGroupResponse.member_count": "members",
    "GetGroupResponse.retry_message_count": "retryMessages",
    "GetGroupResponse.dead_letter_count": "deadLetters",
    "Connection.last_update_ms": "lastUpdateTimestamp",
    "Registration.last_update_ms": "lastUpdateTimestamp",
    "WaitingSegments.segment_count": "segments",
    "WaitingSegments.until_timestamp_ms": "until",
    "CleanExpiredFilesResponse.removed_file_count": "removedSegments",
    "CleanUnusedTopicsResponse.topics": "removedTopics",
    "DeleteGroupResponse.topics": "deletedTopics",
}
# Times whose name does not end with `timestamp_ms`.
_TIMES = frozenset({"Connection.last_update_ms", "Registration.last_update_ms"})
# Numbers that are unknown, or without a limit, if they are below 0.
_UNKNOWN_BELOW_0 = frozenset(
    {
        "GroupHistory.lag",
        "GroupHistory.lags",
        "GroupSummary.lag",
        "GroupSummary.member_count",
        "GroupSummary.topic_count",
        "HistoryMinute.lag",
        "LatencyBucket.at_most_ms",
        "QueueOffsets.committed_offset",
        "ResetOffset.old_offset",
    }
)
_LEFT_OUT = frozenset({"status", "record_sizes", "records"})
_TIME_END = "timestamp_ms"


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field in JSON: its key, the field of its type, and the function that returns its value."""

    key: str
    descriptor: Field
    value: Callable[[Any], object]


def json_of(message: Message) -> dict[str, object]:
    """Returns a message as JSON."""
    return {field.key: field.value(message) for field in fields_of(type(message))}


# Fields by the name of a message type. The contract has few types, so all are kept.
_known: dict[str, tuple[JsonField, ...]] = {}


def fields_of(kind: type[Message]) -> tuple[JsonField, ...]:
    """Returns the fields that messages of a type have in JSON."""
    name = kind.DESCRIPTOR.full_name
    found = _known.get(name)
    if found is None:
        found = _known[name] = tuple(_json_fields(kind))
    return found


def _json_fields(kind: type[Message]) -> list[JsonField]:
    descriptor = kind.DESCRIPTOR
    found = [
        JsonField(key_of(field), field, _value_of(field))
        for field in descriptor.fields
        if field.name not in _LEFT_OUT
    ]
    if kind is admin_pb2.TopicQueueStatus:
        end = descriptor.fields_by_name["max_offset"]
        found.append(JsonField("messages", end, lambda each: each.max_offset - each.min_offset))
    if kind is broker_pb2.QueueOffsets:
        found.append(JsonField("lag", descriptor.fields_by_name["max_offset"], lag_of))
    return found


def lag_of(queue: broker_pb2.QueueOffsets) -> int:
    """Returns the existing messages of a queue that a group has not consumed."""
    return max(queue.max_offset - max(queue.committed_offset, queue.min_offset), 0)


def key_of(field: Field) -> str:
    """Returns the key of a field."""
    found = KEYS.get(_name(field))
    return found or camel(field.name.removesuffix("_ms") if is_time(field) else field.name)


def camel(name: str) -> str:
    """Returns a field's name in camel case, as RocketMQ writes it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def is_time(field: Field) -> bool:
    """True if a field is a time in ms since 1970."""
    return field.name.endswith(_TIME_END) or _name(field) in _TIMES


def is_map(field: Field) -> bool:
    """True if a field is a map of texts."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def may_be_null(field: Field) -> bool:
    """True if a field, or an entry of a list, is null in the JSON of some messages."""
    if _name(field) in _UNKNOWN_BELOW_0:
        return True
    is_unset = field.has_presence or field.enum_type is not None or is_time(field)
    return is_unset and not field.is_repeated


def _name(field: Field) -> str:
    return f"{field.containing_type.name}.{field.name}"


def _value_of(field: Field) -> Callable[[Any], object]:
    """Returns the function that returns a field's value in JSON."""
    name, value = field.name, _single(field)
    if is_map(field):
        return lambda message: dict(sorted(getattr(message, name).items()))
    if field.is_repeated:
        return lambda message: [value(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _single(field: Field) -> Callable[[Any], object]:
    """Returns the function that converts one value of a field."""
    if field.message_type is not None:
        return json_of
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value)) if value else None
    if is_time(field):
        return lambda value: time_of_ms(value) if value > 0 else None
    if _name(field) in _UNKNOWN_BELOW_0:
        return lambda value: value if value >= 0 else None
    return lambda value: value


def message_class(field: Field) -> type[Message]:
    """Returns the class of a field's messages."""
    return GetMessageClass(field.message_type)

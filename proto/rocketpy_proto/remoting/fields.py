"""Conversion of headers and bodies to values by their fields.

A class of fields gives each field's type. A field's name on the wire is the same in camel case,
unless `field(name=...)` gives another. A header's values are texts on the wire; a body is JSON.
Unknown fields are left out, since a peer may be newer. null counts as absent. Source:
docs/design/remoting.md sections 2.3 and 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rocketpy_proto.remoting.errors import RemotingFormatError, UnencodableRemotingError
from rocketpy_proto.remoting.json_text import (
    DECLARED_BY_PARSERS,
    check_references,
    format_error,
    read_json,
)
from rocketpy_proto.struct_types import Body, Int32, prepared


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the headers: the ext fields of a command."""


class MessageQueue(Body, frozen=True):
    """A queue of a topic at a broker."""

    broker_name: str
    queue_id: Int32
    topic: str


_QUEUE_DECODER = msgspec.json.Decoder(MessageQueue, strict=False)
H = TypeVar("H", bound=Header)
B = TypeVar("B", bound=Body)
V = TypeVar("V")


class QueueTable(Mapping[MessageQueue, V]):
    """A table by queues; on the wire a key is an object, or its JSON as a string."""

    def __init__(self, entries: Mapping[MessageQueue, V]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, queue: MessageQueue) -> V:
        return self._entries[queue]

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"QueueTable({self._entries!r})"


@dataclass(frozen=True, slots=True)
class HeaderForm(Generic[H]):
    """A header as ext fields. `names` maps usual field names to other ones."""

    kind: type[H]
    names: Mapping[str, str] = dataclass_field(default_factory=dict)
    _usual: Mapping[str, str] = dataclass_field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Inverts `names`, once for all headers."""
        object.__setattr__(self, "_usual", {short: name for name, short in self.names.items()})

    def encode(self, header: H) -> dict[str, str]:
        """Returns the ext fields, without None values. Raises UnencodableRemotingError."""
        values = _encodable(header)
        return {
            self.names.get(name, name): _text(value)
            for name, value in values.items()
            if value is not None
        }

    def decode(self, ext_fields: Mapping[str, str]) -> H:
        """Returns the header. Raises RemotingFormatError with the missing or wrong field's name."""
        if self.names:
            usual = self._usual.get
            ext_fields = {usual(name, name): value for name, value in ext_fields.items()}
        try:
            return msgspec.convert(ext_fields, prepared(self.kind), strict=False)
        except DECLARED_BY_PARSERS as error:
            raise format_error(self.kind.__name__, error) from error


def encode_body(body: Body) -> bytes:
    """Returns JSON without None values. Raises UnencodableRemotingError.

    It is standard JSON but for the keys of the body's QueueTables, which are objects: 5.5 reads
    no strings there.
    """
    values = _without_nulls(_encodable(body))
    assert isinstance(values, dict)
    for name, attribute in _tables_of(type(body)):
        values[name] = msgspec.Raw(b"{%s}" % encode_entries(getattr(body, attribute)))
    return _encoded(values, type(body).__name__)


def encode_entries(entries: Mapping[str, Body] | Mapping[MessageQueue, Any]) -> bytes:
    """Returns entries of a table, without the braces of the table.

    Callers encode a large table in parts, so that no part takes long.
    Raises UnencodableRemotingError.
    """
    try:
        return b",".join(
            b"%s:%s" % (msgspec.json.encode(key), msgspec.json.encode(_plain(entry)))
            for key, entry in entries.items()
        )
    except DECLARED_BY_PARSERS as error:
        raise UnencodableRemotingError("entries of a table", str(error)) from error


def encode_with_part(body: Body, name: str, part: bytes) -> bytes:
    """Returns a body whose field `name` has an encoded value. Raises UnencodableRemotingError."""
    values = _without_nulls(_encodable(body))
    assert isinstance(values, dict)
    return _encoded({**values, name: msgspec.Raw(part)}, type(body).__name__)


def _encoded(values: object, what: str) -> bytes:
    try:
        return msgspec.json.encode(values)
    except UnicodeEncodeError as error:
        raise UnencodableRemotingError(what, str(error)) from error


def _plain(entry: object) -> object:
    return _without_nulls(msgspec.to_builtins(entry, enc_hook=_table_to_json))


@cache
def _tables_of(kind: type[Body]) -> list[tuple[str, str]]:
    """Returns the fields that are QueueTables: their names on the wire and in Python."""
    hints = get_type_hints(kind)
    return [
        (each.encode_name, each.name)
        for each in msgspec.structs.fields(kind)
        if get_origin(hints[each.name]) is QueueTable
    ]


def decode_body(kind: type[B], data: bytes | memoryview) -> B:
    """Returns the value of a body, which may be fastjson's. Raises RemotingFormatError."""
    return decode_bounded_body(kind, data, None)


def decode_bounded_body(
    kind: type[B], data: bytes | memoryview, lenient_bytes_max: int | None
) -> B:
    """Returns the value of a body, as `decode_body` does.

    Plain JSON without null is read about a hundred times faster than other text. A caller may
    limit the bytes of other text.
    """
    check_references(data, kind.__name__)
    try:
        return msgspec.json.decode(
            data, type=prepared(kind), strict=False, dec_hook=_table_from_json
        )
    except DECLARED_BY_PARSERS as error:
        if lenient_bytes_max is not None and len(data) > lenient_bytes_max:
            reason = f"{len(data)} bytes that are not plain JSON, limit {lenient_bytes_max}"
            raise RemotingFormatError(kind.__name__, f"{reason}: {error}") from error
    value = _without_nulls(read_json(data, kind.__name__))
    try:
        return msgspec.convert(value, prepared(kind), strict=False, dec_hook=_table_from_json)
    except DECLARED_BY_PARSERS as error:
        raise format_error(kind.__name__, error) from error


def _encodable(value: Header | Body) -> dict[str, object]:
    """Returns the values by names on the wire. Raises UnencodableRemotingError.

    Constructors check neither types nor ranges, so the values are converted back as a check.
    """
    try:
        values: dict[str, object] = msgspec.to_builtins(value, enc_hook=_table_to_json)
        msgspec.convert(values, prepared(type(value)), dec_hook=_table_from_json)
    except DECLARED_BY_PARSERS as error:
        raise UnencodableRemotingError(type(value).__name__, str(error)) from error
    return values


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value


def _table_to_json(table: object) -> dict[str, object]:
    assert isinstance(table, QueueTable), type(table)
    return {msgspec.json.encode(queue).decode(): entry for queue, entry in table.items()}


def _table_from_json(kind: object, value: object) -> object:
    if kind is object:
        return value
    (entry_kind,) = get_args(kind)
    entries = msgspec.convert(
        value,
        dict[str, prepared(entry_kind)],  # type: ignore[misc] # It is known at run time only.
        strict=False,
    )
    return QueueTable({_QUEUE_DECODER.decode(key): entry for key, entry in entries.items()})

"""Arrow and Parquet files of messages to import.

A file has the columns of an export or fewer. A fault of a file raises MessageFileError before a
message of it is stored. The error contains the file, and the row if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from rocketpy_broker.errors import MessageFileError
from rocketpy_proto.record import COLUMN_TYPES

ROWS_MAX = 1 << 16
_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"
# Columns that the store assigns; an import ignores them.
ASSIGNED_COLUMNS = frozenset({"queueOffset", "storeTimestamp", "storeHost", "commitLogOffset"})


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The accepted types of a column, their words for errors, and the target type of the cast."""

    is_accepted: Callable[[pa.DataType], bool]
    words: str
    target: pa.DataType


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind)) or _is_text(kind)


def _is_keys(kind: pa.DataType) -> bool:
    is_list = types.is_list(kind) or types.is_large_list(kind)
    return _is_text(kind) or bool(is_list and _is_text(kind.value_type))


def _is_properties(kind: pa.DataType) -> bool:
    return bool(types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_integer(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind))


_TEXT = _Accepted(_is_text, "a string", pa.string())
_INT32 = _Accepted(_is_number, "an integer", pa.int32())
_BY_NAME: Mapping[str, _Accepted] = {
    "topic": _TEXT,
    "queueId": _INT32,
    "body": _Accepted(_is_bytes, "binary or a string", pa.binary()),
    "tags": _TEXT,
    "keys": _Accepted(_is_keys, "a string or a list of strings", COLUMN_TYPES["keys"]),
    "properties": _Accepted(
        _is_properties, "a map of strings to strings", COLUMN_TYPES["properties"]
    ),
    "msgId": _TEXT,
    "offsetMsgId": _TEXT,
    "bornTimestamp": _Accepted(_is_time, "a timestamp, or an integer in ms", pa.int64()),
    "bornHost": _TEXT,
    "reconsumeTimes": _INT32,
    "sysFlag": _INT32,
    "messageGroup": _TEXT,
    "bodyError": _TEXT,
}
assert _BY_NAME.keys() | ASSIGNED_COLUMNS == COLUMN_TYPES.keys()


class MessageFile:
    """One file; its first bytes show its format. Raises MessageFileError for other formats."""

    def __init__(self, path: Path, *, has_topic: bool) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                magic = file.read(len(_ARROW_MAGIC))
            self._is_parquet = magic.startswith(_PARQUET_MAGIC)
            if not self._is_parquet and magic != _ARROW_MAGIC:
                raise MessageFileError(path, "is neither an Arrow file nor a Parquet file")
            schema = pq.read_schema(path) if self._is_parquet else pa.ipc.open_file(path).schema
        except (OSError, pa.ArrowException) as error:
            raise MessageFileError(path, f"cannot be read ({error})") from error
        self._check(schema, has_topic=has_topic)

    def _check(self, schema: pa.Schema, *, has_topic: bool) -> None:
        for name in ["body"] if has_topic else ["topic", "body"]:
            if name not in schema.names:
                way_out = "; name one with --topic" if name == "topic" else ""
                raise MessageFileError(self.path, f"has no column {name!r}{way_out}")
        for field in schema:
            if schema.names.count(field.name) > 1:
                raise MessageFileError(self.path, f"has column {field.name!r} more than once")
            if field.name not in COLUMN_TYPES:
                accepted = ", ".join(COLUMN_TYPES)
                reason = f"column {field.name!r} is unknown; columns are {accepted}"
                raise MessageFileError(self.path, reason)
            accepts = _BY_NAME.get(field.name)
            if accepts is not None and not accepts.is_accepted(field.type):
                reason = f"column {field.name!r} is {field.type}, accepted is {accepts.words}"
                raise MessageFileError(self.path, reason)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the messages, up to ROWS_MAX at a time, cast as in `_BY_NAME`; may run twice."""
        row = 0
        try:
            for whole in self._read():
                for begin in range(0, len(whole), ROWS_MAX):
                    batch = whole.slice(begin, ROWS_MAX)
                    batch.validate(full=True)
                    yield _cast(batch)
                    row += len(batch)
        except (OSError, pa.ArrowException) as error:
            reason = f"from row {row} on it cannot be read ({error})"
            raise MessageFileError(self.path, reason) from error

    def _read(self) -> Iterator[pa.RecordBatch]:
        if self._is_parquet:
            with pq.ParquetFile(self.path) as file:
                yield from file.iter_batches(ROWS_MAX)
            return
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def _cast(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the imported columns in their target types; times in ms."""
    names = [name for name in batch.schema.names if name in _BY_NAME]
    return pa.RecordBatch.from_arrays(
        [_cast_column(batch.column(name), _BY_NAME[name].target) for name in names], names
    )


def _cast_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    if types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    if types.is_list(target) and _is_text(column.type):
        # A string of keys is separated by blanks, as in the property.
        return pc.split_pattern(column.cast(pa.string()), " ")
    return column.cast(target)

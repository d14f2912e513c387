"""Rows of a task before encoding: columns, checks, names in errors.

Columns have the names of `SinkColumns` and types that the encoder accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.transport.values import BrokerLimits

# Columns that identify a message; the first that a row has is used.
_IDENTIFYING = ("keys", "messageGroup", "tags")
_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a task; `numbers` are their positions in it."""

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    partition: int

    @classmethod
    def of(cls, batch: pa.RecordBatch, names: tuple[str, ...], first: int, partition: int) -> Rows:
        """Returns a whole Arrow batch; its first row is row `first` of the task."""
        numbers = np.arange(first, first + batch.num_rows)
        return cls(batch.rename_columns(list(names)), numbers, partition)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def has(self, name: str) -> bool:
        """True if the column exists."""
        return name in self.batch.schema.names

    def column(self, name: str) -> pa.Array | None:
        """Returns the column, or None."""
        return self.batch.column(name) if self.has(name) else None

    def text(self, name: str) -> pa.StringArray:
        """Returns an existing column as strings with 32-bit offsets."""
        return self.batch.column(name).cast(pa.string())

    def part(self, which: slice) -> Rows:
        """Returns adjacent rows, over the same memory."""
        batch = self.batch.slice(which.start, which.stop - which.start)
        return Rows(batch, self.numbers[which], self.partition)

    def where(self, index: int) -> str:
        """Returns a row's position and an identifying value, for an error."""
        place = f"row {self.numbers[index]} of partition {self.partition}"
        for name in _IDENTIFYING:
            column = self.column(name)
            value = None if column is None else _shown(column[index])
            if value:
                shown = repr(value)
                shown = shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + "..."
                return f"{place} ({name} {shown})"
        return place

    def check_texts(self) -> None:
        """Raises ColumnError for a text that is not UTF-8, which cast binary data may be."""
        for name in self.batch.schema.names:
            column = self.batch.column(name)
            if name == "body" or _is_valid(column):
                continue
            for row in range(len(column)):
                if not _is_utf8(column.slice(row, 1)):
                    raise ColumnError(
                        f"column {name} is not valid UTF-8 in {self.where(row)}; filter such rows "
                        "out, or write the binary data as text, for instance with base64"
                    )

    def check_bodies(self, limits: BrokerLimits) -> None:
        """Raises ColumnError for a null or too small body, OversizeMessageError for a large one."""
        body = self.batch.column("body")
        if body.null_count:
            row = first_true(body.is_null())
            raise ColumnError(
                f"column body is null in {self.where(row)}; filter such rows out, or fill them"
            )
        lengths = self.body_bytes()
        if (short := lengths < limits.body_bytes_min).any():
            raise ColumnError(
                f"column body is empty in {self.where(int(np.argmax(short)))}; RocketMQ's "
                "brokers cannot handle messages without a body: filter such rows out, or fill "
                "them"
            )
        if lengths.max(initial=0) > limits.body_bytes_max:
            row = int(np.argmax(lengths > limits.body_bytes_max))
            raise OversizeMessageError(
                f"column body has {lengths[row]} bytes in {self.where(row)}, limit "
                f"{limits.body_bytes_max}; send smaller messages"
            )

    def body_bytes(self) -> NDArray[np.int64]:
        """Returns the size of each body."""
        lengths = pc.binary_length(self.batch.column("body"))
        numbers: NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.to_pylist()
    except UnicodeDecodeError:
        return False
    return True


def _shown(value: pa.Scalar) -> object:
    """Returns the value for an error; None if it is not text."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None


def first_true(found: pa.BooleanArray) -> int:
    """Returns the index of the first true value."""
    return int(np.argmax(found.to_numpy(zero_copy_only=False)))


def cuts(sizes: NDArray[np.int64], size_max: int) -> Iterator[slice]:
    """Yields runs of items that add up to at most `size_max`; a larger item is alone."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, before + size_max, "right")))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])

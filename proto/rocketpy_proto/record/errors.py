"""Errors of the record codec.

RecordError                     reason
├── MalformedRecordError        bytes that are no record: position, index
├── UnexpectedRecordsError      records other than the requested ones
└── UnencodableRecordError      a value that no record can hold: field, value, index
"""

from __future__ import annotations


class RecordError(ValueError):
    """Base of the codec's errors."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class MalformedRecordError(RecordError):
    """Bytes that are not a record, or only part of one.

    `position` is the record's first byte in the given buffer. `index` is its number in the block,
    None for an error of the whole block.
    """

    def __init__(self, reason: str, position: int = 0, index: int | None = None) -> None:
        which = "block" if index is None else f"record {index}"
        super().__init__(f"{which} at byte {position}: {reason}", reason)
        self.position = position
        self.index = index

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.position, self.index)


class UnexpectedRecordsError(RecordError):
    """Records that a queue's reader did not request, or too few of them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason)


class UnencodableRecordError(RecordError):
    """A value that no record can hold; nothing was encoded. `index` is the row, None for all."""

    def __init__(self, field: str, value: object, reason: str, index: int | None = None) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        row = "" if index is None else f"row {index}: "
        super().__init__(f"{row}{field} {shown} {reason}", reason)
        self.field = field
        self.value = value
        self.index = index

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.field, self.value, self.reason, self.index)

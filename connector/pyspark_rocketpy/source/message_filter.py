"""Filter of a task's messages by tag and key.

The broker filters by hashes of tags, and several tags may have the same hash. The filter compares
the texts themselves, so a task's rows are exact whatever the broker did. The broker alone evaluates
an SQL92 expression, and then receives no tags. Source: docs/design/storage.md section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record import RecordBlock, java_hash, property_column
from rocketpy_proto.record.block.arrays import numbers_in, strings_of, truths_in
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, TAGS


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter for messages with one of `tags` and one of `keys`; None means any."""

    tags: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    expression: str | None = None

    @property
    def tags_codes(self) -> tuple[int, ...]:
        """The tags codes for the broker; empty for every tag."""
        if self.expression is not None:
            return ()
        return tuple(sorted({java_hash(tag) for tag in self.tags or ()}))

    def select(self, block: RecordBlock) -> RecordBlock:
        """Returns the matching records of `block`."""
        if self.tags is not None:
            found = pc.is_in(property_column(block, TAGS), strings_of(self.tags))
            block = block.filter(truths_in(found))
        if self.keys is not None:
            block = block.filter(_has_any(property_column(block, KEYS), self.keys))
        return block


def _has_any(texts: pa.StringArray, keys: tuple[str, ...]) -> NDArray[np.bool_]:
    """Returns a mask of the texts that have one of `keys`; blanks separate a text's keys."""
    tokens = pc.split_pattern(texts, KEY_SEPARATOR)
    wanted = pc.is_in(tokens.flatten(), strings_of(keys))
    found = np.zeros(len(texts), np.bool_)
    found[numbers_in(pc.list_parent_indices(tokens).filter(wanted), np.int64)] = True
    return found

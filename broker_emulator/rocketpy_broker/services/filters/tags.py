"""Tag expressions such as `TagA || TagB`.

Source: docs/design/broker_behaviour.md section 2.3.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.errors import SubscriptionParseError
from rocketpy_proto.model import OR
from rocketpy_proto.record import RecordBlock, java_hash, property_column
from rocketpy_proto.record.properties import TAGS

ALL_TAGS = "*"
CHARACTERS_MAX = 32_767


def codes_of(expression: str) -> list[int]:
    """Returns the tags codes of an expression; an empty list for all messages.

    Raises SubscriptionParseError.
    """
    return sorted({java_hash(tag) for tag in tags_of(expression)})


def tags_of(expression: str) -> list[str]:
    """Returns the tags of an expression; an empty list for all messages.

    Raises SubscriptionParseError.
    """
    if expression in {"", ALL_TAGS}:
        return []
    if len(expression) > CHARACTERS_MAX:
        reason = f"it has {len(expression)} characters, limit {CHARACTERS_MAX}"
        raise SubscriptionParseError(f"TAG: {reason}")
    tags = [tag for part in expression.split(OR) if (tag := part.strip())]
    if not tags:
        raise SubscriptionParseError(f"TAG: {expression[:64]!r} names no tag; write '*' for all")
    return tags


def has_tag(expression: str, block: RecordBlock) -> NDArray[np.bool_]:
    """Returns a mask of the records with one of the tags, by text instead of code.

    Raises SubscriptionParseError.
    """
    tags = tags_of(expression)
    if not tags:
        return np.ones(len(block), np.bool_)
    found = pc.is_in(property_column(block, TAGS), value_set=pa.array(tags, pa.string()))
    mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return mask

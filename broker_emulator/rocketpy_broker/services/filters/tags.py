"""Tag expressions such as `TagA || TagB`.

Source: docs/design/broker_behaviour.md section 2.3.
"""

from __future__ import annotations

from rocketpy_broker.errors import SubscriptionParseError
from rocketpy_proto.record import java_hash

ALL_TAGS = "*"
SEPARATOR = "||"
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
    tags = [tag for part in expression.split(SEPARATOR) if (tag := part.strip())]
    if not tags:
        raise SubscriptionParseError(f"TAG: {expression[:64]!r} names no tag")
    return tags

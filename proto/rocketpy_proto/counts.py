"""Counts in texts, with the noun in its right number."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """Returns a count and its noun: `1 message`, `2 messages`.

    `many` is needed where the plural is not `one` and an s, as for `entry` or `queue waits`.
    """
    if count == 1:
        return f"1 {one}"
    return f"{count} {many or one + 's'}"

"""Regular expressions for names of topics, in time that grows with the name only.

They are RE2's, since any client may send one: what Python's own module reads in the same text may
try more ways to match than anybody can wait for. Holds no state. Row K05.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.errors import ParameterIllegalError

CHARACTERS_MAX = 1_000


class TopicPattern:
    """What whole names are matched with."""

    def __init__(self, text: str) -> None:
        """Raises ParameterIllegalError."""
        if len(text) > CHARACTERS_MAX:
            accepted = f"{CHARACTERS_MAX} characters or fewer"
            raise ParameterIllegalError("topic_pattern", f"{text:.100}", accepted)
        self.text = text
        self._whole = rf"\A(?:{text})\z"
        try:
            # By itself as well, since parentheses around it could make it a correct one.
            for pattern in (text, self._whole):
                pc.match_substring_regex(pa.array([""], pa.string()), pattern)
        except pa.ArrowInvalid as error:
            accepted = f"a regular expression of RE2's ({error!s:.200})"
            raise ParameterIllegalError("topic_pattern", text, accepted) from error

    def matches(self, names: Sequence[str]) -> list[bool]:
        """Which of the names are found; never one that is no valid Unicode."""
        texts = [name if _is_valid(name) else None for name in names]
        found = pc.match_substring_regex(pa.array(texts, pa.string()), self._whole)
        return [bool(is_match) for is_match in found.to_pylist()]


def _is_valid(name: str) -> bool:
    """A file of configuration may hold half of a pair of UTF-16."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)

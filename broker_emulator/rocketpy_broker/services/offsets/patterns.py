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
        """Which of the names are found."""
        found = pc.match_substring_regex(pa.array(names, pa.string()), self._whole)
        matches: list[bool] = found.to_pylist()
        return matches

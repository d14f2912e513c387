"""Regular expressions for topic names, in time linear in the name.

Broker and connector both use RE2. Python's `re` reads other expressions, and its backtracking has
no time limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketpy_proto.texts import is_unicode

CHARACTERS_MAX = 1_000
# Parentheses can make an invalid text valid, so the text is first checked without them. The second
# form closes an open `\Q`.
_WHOLE = (r"\A(?:{})\z", r"\A(?:{}\E)\z")


class PatternError(ValueError):
    """A text that RE2 does not read, or that is too long; the error's text is the reason."""


class TopicPattern:
    """A pattern that whole topic names match."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        if len(text) > CHARACTERS_MAX:
            raise PatternError(f"{len(text)} characters, limit {CHARACTERS_MAX}")
        self.text = text
        fault = _fault(text)
        if fault is not None:
            raise PatternError(fault)
        whole = [form.format(text) for form in _WHOLE]
        fitting = [each for each in whole if _fault(each) is None]
        if not fitting:
            raise PatternError(_fault(whole[0]))
        self._whole = fitting[0]

    def matches(self, names: Sequence[str]) -> list[bool]:
        """Returns for each name if it matches; a name of invalid Unicode never does."""
        texts = [name if is_unicode(name) else None for name in names]
        return [bool(is_match) for is_match in _matches(texts, self._whole)]


def _matches(texts: Sequence[str | None], pattern: str) -> list[bool | None]:
    # Both are slow to import, and most queries name their topics.
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[bool | None] = pc.match_substring_regex(
        pa.array(texts, pa.string()), pattern
    ).to_pylist()
    return found


def _fault(pattern: str) -> str | None:
    try:
        _matches([""], pattern)
    except ValueError as error:
        return f"{error!s:.200}"
    return None

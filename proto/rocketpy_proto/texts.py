"""Checks of texts."""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    """True if a text has no surrogates, which no encoding has; JSON may have lone ones."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)

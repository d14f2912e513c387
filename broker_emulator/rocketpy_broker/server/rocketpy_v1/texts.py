"""Texts of configuration files in answers."""

from __future__ import annotations


def shown(text: str) -> str:
    """Returns `text` with question marks for invalid Unicode, which foreign files may hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()

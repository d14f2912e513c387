"""Texts of configuration files, as answers can carry them. Holds no state."""

from __future__ import annotations


def shown(text: str) -> str:
    """Files of others may hold what is no valid Unicode; it is shown with question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()

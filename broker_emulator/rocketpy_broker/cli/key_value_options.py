"""Repeatable options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def key_value_options(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Returns the values by name. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            reason = f"{text!r} is not of the form NAME=VALUE"
            raise typer.BadParameter(reason, param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found

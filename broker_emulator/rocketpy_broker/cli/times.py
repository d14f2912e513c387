"""Parsing of times in options and files."""

from __future__ import annotations

import re
from datetime import datetime

import typer

_UTC = re.compile(r"[zZ]$")


def parsed_time(text: str) -> datetime:
    """Returns a time in ISO 8601 with a time zone. Raises ValueError with the fault."""
    try:
        # Python 3.10 does not parse the letter Z.
        time = datetime.fromisoformat(_UTC.sub("+00:00", text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no time; write it like 2026-05-01T08:00:00Z") from error
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; end it with Z, or with +02:00")
    return time


def time_option(text: str, option: str) -> datetime:
    """Returns the time of an option. Raises typer.BadParameter."""
    try:
        return parsed_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error

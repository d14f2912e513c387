"""Parsing of times in options."""

from __future__ import annotations

from datetime import datetime

import typer

from rocketpy_broker.runtime.time_format import parsed_time


def time_option(text: str, option: str) -> datetime:
    """Returns the time of an option. Raises typer.BadParameter."""
    try:
        return parsed_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error

"""Confirmation of changes that cannot be undone.

Only a user at a terminal is asked, a script is not.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rocketpy_broker.cli.exits import EXIT_INTERRUPTED, EXIT_REFUSED

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for a confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal; ends the command if the answer is no."""
    if yes or not sys.stdin.isatty():
        return
    try:
        code = 0 if typer.confirm(question, err=True) else EXIT_REFUSED
    except typer.Abort:
        # Ctrl-C or end of input.
        typer.echo(err=True)
        code = EXIT_INTERRUPTED
    if code:
        typer.echo("rocketpy: nothing was changed", err=True)
        raise typer.Exit(code)

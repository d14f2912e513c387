"""Questions before something is changed that cannot be changed back. Holds no state.

Only a terminal is asked: a script says what it means by calling the command.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rocketpy_broker.cli.exits import EXIT_INTERRUPTED, EXIT_REFUSED

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is done.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal; end where the answer is no. Nothing was changed then."""
    if yes or not sys.stdin.isatty():
        return
    try:
        code = 0 if typer.confirm(question, err=True) else EXIT_REFUSED
    except typer.Abort:
        # Ctrl-C, or the end of the input.
        typer.echo(err=True)
        code = EXIT_INTERRUPTED
    if code:
        typer.echo("rocketpy: nothing was changed", err=True)
        raise typer.Exit(code)

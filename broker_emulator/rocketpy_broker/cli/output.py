"""Output of commands: tables, tab-separated columns in a pipe, or JSON.

A pipe gets no colours, no boxes and no digit separators. Control characters of texts are escaped.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | int
ABSENT = "-"
LINE_CHARACTERS_MAX = 1000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, groups_digits: bool = False
) -> None:
    """Prints rows under their headings; `groups_digits` separates thousands by commas.

    A terminal gets all rows at once, a pipe gets each row as it is read.
    """
    if sys.stdout.isatty():
        with working("Reading"):
            all_rows = list(rows)
        Console().print(table_of(columns, all_rows, groups_digits=groups_digits))
        return
    left = iter(rows)
    # If the broker refuses, the pipe gets no headings.
    first = next(left, None)
    print_columns(columns)
    for row in left if first is None else chain([first], left):
        print_columns(row)


def print_fields(fields: Mapping[str, Cell]) -> None:
    """Prints names and values: a table on a terminal, `name : value` lines in a pipe."""
    if sys.stdout.isatty():
        Console().print(table_of(("field", "value"), [[*field] for field in fields.items()]))
        return
    for name, value in fields.items():
        typer.echo(f"{name} : {_cell(value, groups_digits=False)}")


def table_of(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, groups_digits: bool = False
) -> Table:
    """Returns the table of rows for a terminal."""
    table = Table()
    for index, column in enumerate(columns):
        is_number = any(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell, groups_digits=groups_digits)) for cell in row))
    return table


def working(what: str) -> AbstractContextManager[object]:
    """Returns a context that shows a spinner on standard error if that is a terminal."""
    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


def print_columns(cells: Sequence[Cell]) -> None:
    """Prints a line of a list without an end; its columns are not aligned."""
    separator = "  " if sys.stdout.isatty() else "\t"
    typer.echo(separator.join(_cell(cell, groups_digits=False) for cell in cells))


def print_json(value: object) -> None:
    """Prints a value as a line of JSON, with escapes if the output is not Unicode."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    line = json.dumps(value, ensure_ascii=not is_unicode)
    if not line.isprintable():
        # JSON escapes only ASCII control characters; a terminal interprets more.
        line = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
    typer.echo(line)


def flush() -> None:
    """Flushes standard output. Raises BrokenPipeError."""
    sys.stdout.flush()


def drop() -> None:
    """Redirects standard output to /dev/null, after its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_abandoned(wait_ms_max: float = 0) -> bool:
    """True if the reader of the output pipe has closed it, or does so within `wait_ms_max`."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(events & select.POLLERR for _, events in poll.poll(wait_ms_max))


def printable(text: str) -> str:
    """Returns a text on one line, with escapes for control characters."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "replace").decode()
        for each in text
    )


def shortened(text: str, characters_max: int) -> str:
    """Returns the start of a long text, with its length."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… ({len(text)} characters)"


def _cell(cell: Cell, *, groups_digits: bool) -> str:
    if isinstance(cell, int):
        return f"{cell:,}" if groups_digits else str(cell)
    return printable(cell) or ABSENT

"""Output of commands: tables, tab-separated columns in a pipe, or JSON.

A pipe gets no colours, no boxes and no digit separators. Control characters of texts are escaped.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy_broker import contract_json

if TYPE_CHECKING:
    from rich.table import Table

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
        _print_on_terminal(table_of(columns, all_rows, groups_digits=groups_digits))
        return
    left = iter(rows)
    # If the broker refuses, the pipe gets no headings.
    first = next(left, None)
    print_columns(columns)
    for row in left if first is None else chain([first], left):
        print_columns(row)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: its key in JSON, its heading in the table, and its value of an entry.

    An empty key leaves the column out of JSON, an empty heading out of the table. If no column has
    a key, an entry is a message of the contract and has its JSON. `value` is an attribute's name or
    a function. `cell` turns the value into a cell of the table.
    """

    key: str
    heading: str
    value: str | Callable[[Any], Any]
    cell: Callable[[Any], Cell] = lambda value: ABSENT if value is None else value

    def of(self, entry: Any) -> Any:
        """Returns the value of an entry."""
        return getattr(entry, self.value) if isinstance(self.value, str) else self.value(entry)


Columns = Sequence[Column]


def headings(columns: Columns) -> list[str]:
    """Returns the headings of the table."""
    return [column.heading for column in columns if column.heading]


def row_of(columns: Columns, entry: Any) -> list[Cell]:
    """Returns the row of an entry in the table."""
    return [column.cell(column.of(entry)) for column in columns if column.heading]


def json_of(columns: Columns, entry: Any) -> dict[str, object]:
    """Returns an entry as JSON. If no column has a key, it is a message of the contract."""
    found = {column.key: column.of(entry) for column in columns if column.key}
    return found or contract_json.json_of(entry)


def print_entries(
    columns: Columns,
    entries: Iterable[Any],
    *,
    as_json: bool = False,
    groups_digits: bool = False,
) -> int:
    """Prints entries as a table, or as a JSON object a line; returns their number."""
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for entry in entries:
            count += 1
            yield entry

    if as_json:
        for entry in counted():
            print_json(json_of(columns, entry))
    else:
        rows = (row_of(columns, entry) for entry in counted())
        print_table(headings(columns), rows, groups_digits=groups_digits)
    return count


def print_fields(fields: Mapping[str, Cell]) -> None:
    """Prints names and values: a table on a terminal, `name : value` lines in a pipe."""
    if sys.stdout.isatty():
        _print_on_terminal(table_of(("field", "value"), [[*field] for field in fields.items()]))
        return
    for name, value in fields.items():
        typer.echo(f"{name} : {_cell(value, groups_digits=False)}")


def table_of(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, groups_digits: bool = False
) -> Table:
    """Returns the table of rows for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, column in enumerate(columns):
        is_number = any(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell, groups_digits=groups_digits)) for cell in row))
    return table


def _print_on_terminal(table: Table) -> None:
    from rich.console import Console

    Console().print(table)


def working(what: str) -> AbstractContextManager[object]:
    """Returns a context that shows a spinner on standard error if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


def print_columns(cells: Sequence[Cell]) -> None:
    """Prints a line of a list whose later lines are unknown, so its columns are not aligned."""
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

"""Display of a table once, or repeatedly until interrupted.

A terminal shows a table that changes in place. A pipe gets a block or JSON lines with the time at
each interval. The command ends silently when the reader closes the pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import leave_pipe
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import time_of_ms

SECONDS_DEFAULT, SECONDS_MIN, SECONDS_MAX = 2.0, 0.1, 86_400.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Repeat the output until interrupted.")]
Interval = Annotated[
    float,
    typer.Option(min=SECONDS_MIN, max=SECONDS_MAX, help="Seconds between two outputs of --watch."),
]


@dataclass(frozen=True, slots=True)
class QueryView:
    """The result of one query: a table, the same as JSON objects, and notes."""

    columns: Sequence[str]
    rows: Sequence[Sequence[output.Cell]]
    objects: Sequence[Mapping[str, object]]
    notes: Sequence[str] = ()


def show(view: QueryView, *, as_json: bool) -> None:
    """Prints a view once."""
    if as_json:
        for each in view.objects:
            output.print_json(each)
        return
    output.print_table(view.columns, view.rows)
    for note in view.notes:
        typer.echo(f"rocketpy: {note}", err=True)


def watch(query: Callable[[], QueryView], seconds: float, *, as_json: bool) -> NoReturn:
    """Shows new views until interrupted. Raises the errors of `query` and KeyboardInterrupt."""
    if sys.stdout.isatty() and not as_json:
        _watch_in_place(query, seconds)
    while True:
        view = query()
        time = time_of_ms(SystemClock().now_ms())
        if as_json:
            for each in view.objects:
                output.print_json({"time": time, **each})
        else:
            output.print_columns(["time", time])
            output.print_table(view.columns, view.rows)
            typer.echo()
        output.flush()
        if output.is_abandoned(seconds * 1000):
            leave_pipe()


def _watch_in_place(query: Callable[[], QueryView], seconds: float) -> NoReturn:
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            view = query()
            table = output.table_of(view.columns, view.rows)
            time = time_of_ms(SystemClock().now_ms())
            table.caption = " · ".join([time, *map(output.printable, view.notes)])
            live.update(table, refresh=True)
            if output.is_abandoned(seconds * 1000):
                leave_pipe()

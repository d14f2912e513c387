"""Results as text: a table for the terminal and one for the README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.harness import Result

HEAD = ("figure", "measured", "goal", "", "detail")
SMALL = 10


def cells(result: Result) -> list[str]:
    """Returns one row of either table."""
    goal = f"{'≤' if result.at_most else '≥'} {result.goal:g}" if result.goal else ""
    verdict = "" if not result.goal else "reached" if result.reached else "missed"
    value = f"{result.value:.2f}" if result.value < SMALL else f"{result.value:.0f}"
    return [result.name, f"{value} {result.unit}", goal, verdict, result.detail]


def terminal_table(machine: str, results: Iterable[Result]) -> Table:
    """Returns a table of all results."""
    table = Table(*HEAD, title=machine)
    for result in results:
        table.add_row(*cells(result))
    return table


def to_json(machine: str, results: Iterable[Result]) -> dict[str, object]:
    """Returns the content to save."""
    return {"machine": machine, "results": [result.to_json() for result in results]}


def markdown(content: Mapping[str, Any]) -> str:
    """Returns the saved results as the README shows them."""
    rows = [
        Result(**{name: value for name, value in entry.items() if name != "reached"})
        for entry in content["results"]
    ]
    lines = [f"| {' | '.join(cells(row))} |" for row in rows]
    head = [
        f"Machine: {content['machine']}.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def growth_plot(path: Path, append_us: Mapping[int, float], pull_us: Mapping[int, float]) -> None:
    """Draws costs in microseconds a message over the number of stored messages."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for label, costs in (("append", append_us), ("pull", pull_us)):
        axes.plot(list(costs), list(costs.values()), marker="o", label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("messages in the store")
    axes.set_ylabel("microseconds of user time a message")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)

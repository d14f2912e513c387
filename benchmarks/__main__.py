"""Runner of the benchmarks: `python -m benchmarks` prints the table and saves the JSON."""

from __future__ import annotations

import cProfile
import importlib
import json
import os
import platform
import pstats
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness import Result
from benchmarks.report import terminal_table, to_json

# Name -> folder of its module, in the order of the tables.
MODULES = {
    "record": "storage",
    "store": "storage",
    "index": "storage",
    "growth": "storage",
    "senders": "calls",
    "batches": "storage",
    "delay": "calls",
    "pull": "calls",
    "calls": "calls",
    "filter": "storage",
    "source": "spark",
    "sink": "spark",
    "queues": "spark",
    "latency": "spark",
    "memory": "spark",
    "fairness": "calls",
    "held": "calls",
    "start": "spark",
    "topics": "calls",
    "cluster": "rocketmq",
    "java_broker": "rocketmq",
    "transports": "spark",
    "apache_v2": "rocketmq",
    "replication": "calls",
}
PROFILE_LINES = 25
console = Console()


def machine() -> str:
    """Returns a one-line description of the machine."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def run_module(name: str, *, profile: bool) -> Iterator[Result]:
    """Yields the results of one module, or of its part `module:part`.

    Prints a profile of this process if wanted.
    """
    module, *part = name.split(":", 1)
    path = f"benchmarks.{MODULES[module]}.bench_{module}"
    run = partial(importlib.import_module(path).run, *part)
    if not profile:
        yield from run()
        return
    profiler = cProfile.Profile()
    yield from profiler.runcall(lambda: list(run()))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILE_LINES)


def main(
    only: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(MODULES)}; NAME:PART for a part.")
    ] = None,
    json_path: Annotated[Path, typer.Option("--json", help="Where to save the results.")] = Path(
        "artifacts/bench.json"
    ),
    profile: Annotated[
        bool, typer.Option(help="Print where this process spends its time.")
    ] = False,
) -> None:
    """Measures everything that the README claims; ratios are medians of one run."""
    unknown = {name.partition(":")[0] for name in only or []} - set(MODULES)
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is none of {', '.join(MODULES)}")
    results: list[Result] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("benchmarks", total=len(only or MODULES))
        for name in only or MODULES:
            progress.update(bar, description=name)
            for result in run_module(name, profile=profile):
                results.append(result)
                console.print(f"{result.name}: {result.value:.4g} {result.unit}")
                # Saved at once, so that a later failure loses no result.
                save(json_path, results)
            progress.advance(bar)
    console.print(terminal_table(machine(), results))


def save(path: Path, results: list[Result]) -> None:
    """Writes the results to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = to_json(machine(), results)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

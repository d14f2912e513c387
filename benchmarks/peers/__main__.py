"""Runner of the comparison: `make bench-peers` saves the JSON and prints its tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyspark
import typer
from rich.console import Console

from benchmarks.__main__ import machine
from benchmarks.peers import latency, reads, sends, writes
from benchmarks.peers.connectors import Bench, Setting, open_bench
from benchmarks.peers.kafka import JARS
from benchmarks.peers.report import PATH, busy, markdown
from benchmarks.peers.rounds import Line, measure
from tests.interop.rocketmq import V5

PARTS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "reads": reads.lines,
    "writes": writes.lines,
    "latency": latency.lines,
    "sends": sends.lines,
}
USUAL = Setting()
console = Console()


def main(
    only: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(PARTS)}.")] = None,
    json_path: Annotated[Path, typer.Option("--json", help="Where to save the results.")] = PATH,
    rows: Annotated[int, typer.Option(help="Rows of 100 B in a job.")] = USUAL.rows,
    rounds: Annotated[int, typer.Option(help="Rounds of a line.")] = USUAL.rounds,
    seconds: Annotated[float, typer.Option(help="Least time of a turn.")] = USUAL.seconds,
) -> None:
    """Compares with Kafka and RocketMQ, line by line."""
    unknown = set(only or []) - PARTS.keys()
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is none of {', '.join(PARTS)}")
    setting, load = Setting(rows, rounds, seconds), os.getloadavg()[0]
    measured: list[dict[str, Any]] = []
    failed: list[str] = []
    with open_bench(setting) as bench:
        content = {
            "machine": machine(),
            "versions": versions(bench),
            "setting": asdict(setting),
            "load": load,
        }
        for name in only or PARTS:
            for line in PARTS[name](bench):
                console.print(f"{name}: {line.name}")
                # A peer may fail, as a broker of Kafka did for two minutes after half an hour.
                try:
                    measured.append(measure(line, rounds, seconds))
                except Exception:
                    console.print_exception(max_frames=4)
                    failed.append(line.name)
                    continue
                # Saved after each line, so that a later failure loses no result.
                saved = {**content, "busy": busy(load, measured), "lines": measured}
                json_path.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
    if measured:
        console.print(markdown(saved), markup=False, soft_wrap=True)
    if failed:
        console.print(f"not measured, run them again: {'; '.join(failed)}")
        raise typer.Exit(1)


def versions(bench: Bench) -> dict[str, str]:
    """Returns the versions of all programs."""
    return {
        "PySpark": pyspark.__version__,
        "spark-sql-kafka": version_of("spark-kafka/spark-sql-kafka-0-10_2.13"),
        "Kafka's client": version_of("spark-kafka/kafka-clients"),
        "Kafka": version_of("kafka/kafka_2.13"),
        "RocketMQ": V5,
        "Java": str(bench.jvm.java.lang.System.getProperty("java.version")),
    }


def version_of(jar: str) -> str:
    """Returns the version in the name of a jar."""
    (path,) = JARS.glob(f"{jar}-*.jar")
    return path.stem.removeprefix(f"{Path(jar).name}-")


if __name__ == "__main__":
    typer.run(main)

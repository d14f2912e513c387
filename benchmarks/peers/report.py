"""The tables of docs/peers.md, from the JSON of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.rounds import ELSEWHERE_PERCENT_MAX, LOAD_MAX, STEAL_PERCENT_MAX

PATH = Path(__file__).parents[1] / "peers.json"
NO_RUN = "No run on a quiet machine is recorded yet. `make bench-peers` makes one."
Entry = Mapping[str, Any]

_HEAD = ("line", "ours", "peer", "ours / peer", "peer, tuned", "ours / tuned", "goal")
_CPU_HEAD = ("line", "ours", "peer", "peer, tuned")


def busy(load: float, lines: Iterable[Entry]) -> list[str]:
    """Returns the reasons why a run says little: other work of the machine."""
    reasons = [f"the load before the run was {load:.1f}"] if load > LOAD_MAX else []
    for line in lines:
        for name, most in (("elsewhere", ELSEWHERE_PERCENT_MAX), ("steal", STEAL_PERCENT_MAX)):
            share = line[f"{name}_percent"]
            if share > most:
                reasons.append(f"{line['name']}: {share:.0f} % {name}")
    return reasons


def document(path: Path = PATH) -> str:
    """Returns the content between the marks of docs/peers.md."""
    return markdown(json.loads(path.read_text("utf-8"))) if path.exists() else NO_RUN


def markdown(content: Entry) -> str:
    """Returns machine, versions, settings and both tables of a run."""
    lines: list[Entry] = content["lines"]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    setting = content["setting"]
    size = f"turns of {setting['seconds']:g} s or more, jobs of {setting['rows']:,} rows of 100 B"
    load = f"The load before the run was {content['load']:.1f}."
    head = [
        f"Machine: {content['machine']}. {versions}.",
        "",
        f"{setting['rounds']} rounds, {size}. {load}",
    ]
    for reason in content["busy"]:
        head += ["", f"**This machine was busy: {reason}.**"]
    figures = _table(_HEAD, map(_figures, lines))
    costs = _table(_CPU_HEAD, (_costs(line) for line in lines if line["ours"]["cpu_us"]))
    shares = "Microseconds of processor time a row, of JVM, Python and broker:"
    return "\n".join([*head, "", *figures, "", shares, "", *costs])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _figures(line: Entry) -> list[str]:
    verdict = "reached" if line["theirs"]["ratio"]["median"] >= line["goal"] else "missed"
    return [
        line["name"],
        f"{_number(line['ours']['value'])} {line['unit']}",
        f"{line['peer']} {_number(line['theirs']['value'])}",
        _ratio(line["theirs"]),
        _number(line["tuned"]["value"]) if "tuned" in line else "",
        _ratio(line["tuned"]) if "tuned" in line else "",
        f"≥ {line['goal']:g}, {verdict}",
    ]


def _costs(line: Entry) -> list[str]:
    sides = (line.get(side) for side in ("ours", "theirs", "tuned"))
    return [line["name"], *("" if side is None else _parts(side["cpu_us"]) for side in sides)]


def _parts(cpu_us: Entry) -> str:
    return " + ".join(f"{cpu_us[part]:.2f}" for part in ("jvm", "python", "broker"))


def _ratio(side: Entry) -> str:
    ratio = side["ratio"]
    return f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"

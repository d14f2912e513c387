"""The comparison with Kafka and RocketMQ: its rounds, its processor times, its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.processes import Cpu, MachineTimes, Programs, used_by
from benchmarks.peers.report import NO_RUN, busy, document
from benchmarks.peers.rounds import MS, ROWS, SHARE, Done, Line, Turn, measure, repeated

HERE = Programs(os.getpid(), os.getpid())
BURN = "import time\nwhile time.process_time() < 0.3: pass"
LINE: dict[str, Any] = {
    "name": "read",
    "peer": "Kafka",
    "unit": "k rows/s",
    "goal": 1.0,
    "ours": {
        "value": 500.0,
        "ratio": {"median": 1.0, "least": 1.0, "most": 1.0},
        "cpu_us": {"jvm": 1.0, "python": 2.0, "broker": 0.5},
    },
    "theirs": {
        "value": 1250.4,
        "ratio": {"median": 0.4, "least": 0.38, "most": 0.415},
        "cpu_us": {"jvm": 1.25, "python": 0.0, "broker": 0.125},
    },
    "elsewhere_percent": 1.0,
    "steal_percent": 0.0,
}
RUN: dict[str, Any] = {
    "machine": "a machine",
    "versions": {"PySpark": "4.2.0", "Kafka": "4.4.0"},
    "setting": {"rows": 1_800_000, "rounds": 5, "seconds": 8.0},
    "load": 0.25,
    "busy": [],
    "lines": [LINE],
}


def recording(log: list[str], name: str, seconds: Iterable[float]) -> Turn:
    """Returns a turn that logs its name; each row of its ten costs the next of these seconds."""
    costs = iter(seconds)

    def turn(_seconds_min: float) -> Done:
        log.append(name)
        return Done(10, next(costs))

    return turn


def line_of(log: list[str], ours: Iterable[float], theirs: Iterable[float], **more: Any) -> Line:
    programs = {"ours": HERE, "theirs": HERE}
    turns = recording(log, "ours", ours), recording(log, "theirs", theirs)
    return Line("read", *turns, programs, 1.0, **more)


def test_sides_alternate_and_the_round_that_warms_up_does_not_count() -> None:
    log: list[str] = []
    # A first round of seconds, which would spoil every figure.
    line = line_of(log, chain([9e9], [2.0, 4.0, 5.0]), chain([9e9], [4.0, 4.0, 2.0]), unit=MS)
    figures = measure(line, rounds=3, seconds_min=0)
    assert log == ["ours", "theirs"] * 4
    assert figures["ours"]["value"] == 4000
    assert figures["theirs"]["value"] == 4000
    assert figures["theirs"]["ratio"] == {"median": 1.0, "least": 0.4, "most": 2.0}
    assert figures["ours"]["cpu_us"] == {}


def test_a_tuned_side_has_turns_and_ratios_of_its_own() -> None:
    log: list[str] = []
    tuned = recording(log, "tuned", repeat(0.001))
    line = line_of(log, repeat(0.002), repeat(0.004), tuned=tuned)
    figures = measure(line, rounds=1, seconds_min=0)
    assert log == ["ours", "theirs", "tuned"] * 2
    assert [figures[side]["value"] for side in ("ours", "theirs", "tuned")] == [0.5, 0.25, 1.0]
    assert figures["theirs"]["ratio"]["median"] == 2.0
    assert figures["tuned"]["ratio"]["median"] == 0.5
    assert figures["tuned"]["cpu_us"].keys() == {"jvm", "python", "broker"}


@pytest.mark.parametrize(
    ("unit", "value"), [(ROWS, 2.0), (MS, 0.5), (SHARE, 0.05)], ids=lambda each: str(each)[:10]
)
def test_a_cost_in_seconds_has_a_figure_in_each_unit(unit: Any, value: float) -> None:
    assert unit.of(0.0005) == pytest.approx(value)


def test_a_turn_repeats_its_job_until_its_time_is_over_and_at_least_once() -> None:
    calls: list[int] = []
    once = repeated(lambda: calls.append(1), rows=7)(0)
    assert (len(calls), once.rows) == (1, 7)
    done = repeated(lambda: calls.append(1), rows=7)(0.01)
    assert done.rows == 7 * (len(calls) - 1)
    assert done.rows * done.seconds >= 0.01


def test_a_child_that_has_ended_counts_for_the_one_that_waited_for_it() -> None:
    before, used_before, machine = HERE.cpu(), used_by([HERE, HERE]), MachineTimes.now()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    cpu, used = HERE.cpu() - before, used_by([HERE, HERE]) - used_before
    assert cpu.broker >= 0.25
    assert cpu.python >= 0.25
    assert used >= 0.25
    # Not once for each side, nor twice as a descendant; this process itself is its own JVM here.
    assert used < cpu.broker + cpu.python
    assert (MachineTimes.now() - machine).busy >= 0.25


def test_the_time_of_an_idle_worker_that_ends_is_not_taken_from_a_turn() -> None:
    assert Cpu(3.0, 1.0, 2.0) - Cpu(1.0, 4.0, 0.5) == Cpu(2.0, 0.0, 1.5)


@pytest.mark.parametrize(
    ("change", "load", "reasons"),
    [
        ({}, 0.5, []),
        ({}, 0.6, ["the load before the run was 0.6"]),
        ({"steal_percent": 2.1}, 0.1, ["read: 2 % steal"]),
        ({"elsewhere_percent": 34.0}, 0.1, ["read: 34 % elsewhere"]),
    ],
)
def test_a_run_beside_other_work_is_called_busy(
    change: dict[str, float], load: float, reasons: list[str]
) -> None:
    assert busy(load, [LINE | change]) == reasons


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Returns a function that saves the JSON of a run."""

    def save(content: dict[str, Any]) -> Path:
        path = tmp_path / "peers.json"
        path.write_text(json.dumps(content))
        return path

    return save


def test_the_page_shows_a_run(saved: Callable[[dict[str, Any]], Path]) -> None:
    size = "5 rounds, turns of 8 s or more, jobs of 1,800,000 rows of 100 B."
    assert document(saved(RUN)).splitlines() == [
        "Machine: a machine. PySpark 4.2.0, Kafka 4.4.0.",
        "",
        f"{size} The load before the run was 0.2.",
        "",
        "| line | ours | peer | ours / peer | peer, tuned | ours / tuned | goal |",
        "|---|---|---|---|---|---|---|",
        "| read | 500 k rows/s | Kafka 1,250 | 0.40 (0.38 to 0.41) |  |  | ≥ 1, missed |",
        "",
        "Microseconds of processor time a row, of JVM, Python and broker:",
        "",
        "| line | ours | peer | peer, tuned |",
        "|---|---|---|---|",
        "| read | 1.00 + 2.00 + 0.50 | 1.25 + 0.00 + 0.12 |  |",
    ]


def test_the_page_says_that_a_run_was_on_a_busy_machine(
    saved: Callable[[dict[str, Any]], Path],
) -> None:
    page = document(saved(RUN | {"busy": ["read: 34 % elsewhere"]}))
    assert "**This machine was busy: read: 34 % elsewhere.**" in page


def test_the_page_says_how_to_make_a_run_if_there_is_none(tmp_path: Path) -> None:
    assert document(tmp_path / "peers.json") == NO_RUN

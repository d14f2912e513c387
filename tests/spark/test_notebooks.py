"""The notebooks, run whole as programs, and cell by cell as Databricks runs them.

Each notebook asserts its own statements in its cells; these tests check that it ends, and its last
line.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark import notebook_runner
from tests.spark.notebook_runner import FAILURE, PRINTED
from tests.support.installation import SYSTEM_PATH, Environment

pytestmark = pytest.mark.docs
FOLDER = Path(__file__).parents[2] / "notebooks"
HEADER, SEPARATOR = "# Databricks notebook source", "\n# COMMAND ----------\n"
# tests/interop/apache_v2/test_notebook.py runs it with RocketMQ's SDK.
OF_SDK = "sdk_alerts"
RUN_HERE = (
    *("quick_start", "orders", "exactly_once", "clusters", "failover", "flights"),
    "spark_connect",
)
NOTEBOOKS = (*RUN_HERE, OF_SDK)
PNG = b"\x89PNG\r\n"
TEMPORARY = "temporary"

# The environment that shortens a notebook's run, and the last line that it prints.
FEWER = {
    "quick_start": ({"ROCKETPY_ORDERS": "1000"}, "1500 orders written, each read once."),
    "exactly_once": ({"ROCKETPY_PAYMENTS": "2000"}, "2000 payments, each booked once."),
    "orders": ({"ROCKETPY_ORDERS": "160"}, "162 orders, each billed once."),
    "clusters": ({"ROCKETPY_ORDERS": "500"}, "1000 orders written and read."),
    "failover": (
        {"ROCKETPY_ORDERS": "300"},
        "No acknowledged order was lost, and none arrived twice.",
    ),
    "spark_connect": ({"ROCKETPY_READINGS": "2000"}, "2000 readings, 42 alarms."),
    "flights": ({"ROCKETPY_FLIGHTS": "30000"}, "Nothing lost, nothing twice."),
}
CHARTS = {
    "orders": {"orders.png"},
    "spark_connect": {"temperatures.png"},
    "flights": {"delays.png", "lag.png"},
}


def text_of(notebook: str) -> str:
    return (FOLDER / f"{notebook}.py").read_text(encoding="utf-8")


# A process with a session of Spark itself starts no session of Spark Connect.
PROCESSES = (RUN_HERE[:-1], RUN_HERE[-1:])


@pytest.fixture(scope="module")
def folder_of(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Returns a function that returns the folder in which a notebook has run.

    It runs in an environment with nothing but the wheel and its extra `demo`. Notebooks share a
    process, since most of a short run is the start of a JVM.
    """

    @cache
    def run(process: tuple[str, ...]) -> Path:
        top = tmp_path_factory.mktemp("notebooks")
        runs = []
        for notebook in process:
            folder = top / notebook
            temporary = folder / TEMPORARY
            temporary.mkdir(parents=True)
            names = {**FEWER[notebook][0], "TMPDIR": str(temporary)}
            path = str(FOLDER / f"{notebook}.py")
            runs.append({"notebook": path, "folder": str(folder), "environment": names})
        listed = top / "runs.json"
        listed.write_text(json.dumps(runs), encoding="utf-8")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")
        }
        done = subprocess.run(
            [environment("demo") / "python", "-W", "error", notebook_runner.__file__, listed],
            capture_output=True,
            text=True,
            check=False,
            env={**kept, "PATH": SYSTEM_PATH, "MPLBACKEND": "agg"},
            timeout=1100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return top

    def folder(notebook: str) -> Path:
        (process,) = (each for each in PROCESSES if notebook in each)
        return run(process) / notebook

    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("notebook", RUN_HERE)
def test_a_notebook_runs_to_its_end_as_a_program(
    notebook: str, folder_of: Callable[[str], Path]
) -> None:
    folder = folder_of(notebook)
    printed = (folder / PRINTED).read_text(encoding="utf-8")
    failure = folder / FAILURE
    assert not failure.exists(), printed + failure.read_text(encoding="utf-8")
    assert printed.splitlines()[-1] == FEWER[notebook][1]
    charts = {path.name: path.read_bytes() for path in folder.glob("*.png")}
    assert set(charts) == CHARTS.get(notebook, set())
    assert all(chart.startswith(PNG) for chart in charts.values())
    # Spark's JVM leaves folders of its own; a broker's store and a checkpoint are ours.
    left = (folder / TEMPORARY).iterdir()
    assert not [path for path in left if path.name.startswith((notebook, "rocket"))]


class Widgets:
    """Databricks' widgets, with the user's values."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.defaults: dict[str, str] = {}

    def text(self, name: str, default: str) -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        return self.values.get(name, self.defaults[name])


class Utilities:
    """`dbutils`."""

    def __init__(self, widgets: Widgets) -> None:
        self.widgets = widgets


def test_a_notebook_runs_cell_by_cell_with_databricks_names(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    shown: list[DataFrame] = []
    widgets = Widgets({"orders": "200"})
    display: Callable[[DataFrame], None] = shown.append
    names: dict[str, Any] = {"spark": spark, "display": display, "dbutils": Utilities(widgets)}
    for number, cell in enumerate(text_of("quick_start").split(SEPARATOR)):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert widgets.defaults == {"orders": "10000", "queues": "4", "endpoint": ""}
    assert [frame.columns for frame in shown][-1] == ["tags", "count"]
    assert "700 orders written, each read once." in capsys.readouterr().out
    assert spark.range(1).count() == 1, "a session that was there before stays"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_has_databricks_source_format(notebook: str) -> None:
    text = text_of(notebook)
    assert text.startswith(HEADER + "\n# MAGIC %md\n# MAGIC # ")
    for cell in text.removeprefix(HEADER + "\n").split(SEPARATOR):
        lines = cell.strip().splitlines()
        assert lines, "a cell is empty"
        is_magic = lines[0].startswith("# MAGIC %")
        assert all(line.startswith("# MAGIC") == is_magic for line in lines), cell
    lines = text.splitlines()
    first_import = next(n for n, line in enumerate(lines) if line.startswith(("import ", "from ")))
    before = [line for line in lines[:first_import] if line.startswith("# MAGIC %")]
    assert before[1].startswith("# MAGIC %pip install 'pyspark-rocketpy[broker]'")
    assert before[2:] == ["# MAGIC %restart_python"]


def test_every_notebook_is_tested_and_described() -> None:
    found = {path.stem for path in FOLDER.glob("*.py") if text_of(path.stem).startswith(HEADER)}
    assert found == set(NOTEBOOKS)
    page = (FOLDER.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for notebook in NOTEBOOKS:
        assert f"](../notebooks/{notebook}.py)" in page


def test_the_notebook_of_the_sdk_installs_the_tested_version() -> None:
    tested = FOLDER.parent / "tests/interop/apache_v2/requirements.txt"
    assert f'\nSDK = "{tested.read_text("utf-8").strip()}"\n' in text_of(OF_SDK)

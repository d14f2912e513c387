"""The matrix: its coverage, its interpreters, its rows, and the page that shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import copyfile
from xml.etree import ElementTree as ET

import pytest

import noxfile
from noxfile import CELLS, FULL, LOWEST, NEWEST, REFUSED, SUITES, Cell
from tests.support.documents import TOP

ACCEPTED = [cell for cell in CELLS if cell.suite != REFUSED]
ROWS = noxfile.ROWS.relative_to(TOP)
ALONE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_every_value_that_we_accept_is_run_and_one_pyspark_that_is_refused() -> None:
    project = (TOP / "pyproject.toml").read_text("utf-8")
    pythons = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project))
    assert {cell.python for cell in ACCEPTED} == pythons
    assert {cell.pyspark for cell in ACCEPTED} == {"4.2", "4.3"}
    assert {cell.libraries for cell in ACCEPTED} == {LOWEST, NEWEST}
    oldest, newest = min(pythons, key=len_first), max(pythons, key=len_first)
    assert Cell(oldest, "4.2", LOWEST, FULL) in CELLS
    assert Cell(newest, "4.3", NEWEST, FULL) in CELLS
    assert [cell.pyspark for cell in CELLS if cell.suite == REFUSED] == ["4.1"]
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def len_first(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_what_a_cell_runs_is_there_and_runs_spark_and_broker() -> None:
    for cell in CELLS:
        for path in cell.tests:
            assert (TOP / path.removeprefix("--ignore=")).exists(), path
    for cell in ACCEPTED:
        folders = {Path(path).parts[1] for path in cell.tests if not path.startswith("--")}
        assert folders == {"unit", "spark", "broker"}
    assert SUITES.keys() == {cell.suite for cell in CELLS}


def test_the_lowest_are_the_bounds_of_the_project() -> None:
    project = (TOP / "pyproject.toml").read_text("utf-8")
    pins = dict(pin.removesuffix(".*").split("==") for pin in noxfile.lowest())
    for name in ("grpcio", "grpcio-health-checking", "protobuf", "pyarrow", "numpy", "typer"):
        assert f'"{name}>={pins[name]}' in project
    lowest = Cell("3.10", "4.2", LOWEST, FULL).packages
    newest = Cell("3.10", "4.2", NEWEST, FULL).packages
    assert f"grpcio=={pins['grpcio']}.*" in lowest
    assert "pyspark==4.2.*" in lowest
    assert "pyspark[connect]==4.2.*" in newest
    assert not [word for word in newest if word.startswith("grpcio")]


def test_the_first_interpreter_that_the_user_names_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text("#!/bin/sh\necho 3.77\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PYTHONS", f"{tmp_path}/first,{sys.executable} {tmp_path}/second")
    assert noxfile.named_pythons() == {"3.77": f"{tmp_path}/first", VERSION: sys.executable}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Returns a folder with the noxfile, the page, and a row of each cell."""
    for path in ("noxfile.py", "pyproject.toml", "docs/compatibility.md"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        copyfile(TOP / path, tmp_path / path)
    (tmp_path / ROWS).mkdir(parents=True)
    for cell in CELLS:
        (tmp_path / ROWS / cell.row.name).write_text(f"| {cell.name} |\n", encoding="utf-8")
    return tmp_path


def run_nox(top: Path, *words: str, code: int, **environment: str) -> str:
    """Runs nox with no interpreter but the one that runs this test; returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "nox", "-f", top / "noxfile.py", *words],
        env={**ALONE, "PATH": str(top), "HOME": str(top), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_a_missing_interpreter_fails_a_run_in_ci_and_one_of_named_cells(top: Path) -> None:
    cell = next(cell for cell in CELLS if cell.python != VERSION)
    words = ("--python", cell.python)
    missing = f"Python interpreter {cell.python} not found"
    assert missing in run_nox(top, *words, code=0)
    assert missing in run_nox(top, *words, code=1, CI="true")
    assert missing in run_nox(top, code=1, CELLS=cell.name)


def test_a_cell_that_fails_loses_its_row_and_the_others_run_all_the_same(top: Path) -> None:
    """Checks cells without a package index: their environments stay empty."""
    text = run_nox(top, "--python", VERSION, code=1)
    for cell in CELLS:
        assert (f"* {cell.name}: failed" in text) == (cell.python == VERSION)
        assert (top / ROWS / cell.row.name).exists() == (cell.python != VERSION)


def test_an_unknown_cell_is_named(top: Path) -> None:
    text = run_nox(top, code=3, CELLS=f"{CELLS[0].name},2.7-1.6-lowest")
    assert "Sessions not found: 2.7-1.6-lowest\n" in text


def test_the_page_is_written_from_a_complete_run_only(top: Path) -> None:
    page, row = top / "docs" / "compatibility.md", top / ROWS / CELLS[1].row.name
    text, kept = page.read_text("utf-8"), row.read_text("utf-8")
    row.unlink()
    assert f"cells without a result: {CELLS[1].name}." in run_nox(top, "-s", "page", code=1)
    assert page.read_text("utf-8") == text
    row.write_text(kept, encoding="utf-8")
    run_nox(top, "-s", "page", code=0)
    old = text[text.index(noxfile.BEGIN) : text.index(noxfile.END)].splitlines(keepends=True)
    new = [*old[:3], *(f"| {cell.name} |\n" for cell in CELLS)]
    assert page.read_text("utf-8") == text.replace("".join(old), "".join(new))


def test_the_tests_of_a_report_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="9" skipped="3"/><testsuite tests="1"/></testsuites>', "utf-8"
    )
    assert noxfile.counts(report) == (7, 3)
    report.write_text("<testsuites>", encoding="utf-8")
    with pytest.raises(ET.ParseError):
        noxfile.counts(report)


def test_docs_compatibility_names_every_cell_as_it_was_run() -> None:
    text = noxfile.PAGE.read_text("utf-8")
    table = text[text.index(noxfile.BEGIN) : text.index(noxfile.END)]
    titles, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]
    ]
    assert titles == list(noxfile.TITLES)
    assert [row[0] for row in rows] == [f"`{cell.name}`" for cell in CELLS]
    for row, cell in zip(rows, CELLS, strict=True):
        told = dict(zip(titles, row, strict=True))
        assert told["Python"].startswith(f"{cell.python}.")
        assert told["PySpark"].startswith(f"{cell.pyspark}.")
        assert told["tests"] == cell.suite
        assert int(told["passed"]) > 0

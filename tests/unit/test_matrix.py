"""The matrix: its coverage, its interpreters, its results, and the page that shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import TOP
from tests.matrix import __main__ as program
from tests.matrix import environments, interpreters, results
from tests.matrix.cells import CELLS, FULL, LOWEST, NEWEST, REFUSED, SUITES, Cell
from tests.matrix.results import Counts, Result

ACCEPTED = [cell for cell in CELLS if cell.suite != REFUSED]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
GOOD = Result("2026-01-01", {"python": "3.10.1", "pyspark": "4.2.1"}, passed=7, skipped=1)


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
    pins = dict(pin.removesuffix(".*").split("==") for pin in environments.lowest())
    for name in ("grpcio", "grpcio-health-checking", "protobuf", "pyarrow", "numpy", "typer"):
        assert f'"{name}>={pins[name]}' in project
    lowest = environments.packages(Cell("3.10", "4.2", LOWEST, FULL))
    newest = environments.packages(Cell("3.10", "4.2", NEWEST, FULL))
    assert f"grpcio=={pins['grpcio']}.*" in lowest
    assert "pyspark==4.2.*" in lowest
    assert "pyspark[connect]==4.2.*" in newest
    assert not [word for word in newest if word.startswith("grpcio")]


class Machine:
    """A home and a path with programs that act as interpreters."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.home = folder / "bin", folder / "home"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.delenv("PYENV_ROOT", raising=False)

    def add(self, path: Path, version: str, code: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {version}\nexit {code}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def pyenv(self, version: str) -> Path:
        folder = self.home / ".pyenv" / "versions" / version / "bin"
        return self.add(folder / "python", version.rpartition(".")[0])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_what_the_user_names_comes_before_the_path_and_that_before_pyenv(machine: Machine) -> None:
    assert interpreters.find("3.77") is None
    older, newer = machine.pyenv("3.77.9"), machine.pyenv("3.77.10")
    assert interpreters.find("3.77") == newer
    newer.unlink()
    assert interpreters.find("3.77") == older
    on_path = machine.add(machine.bin / "python3.77", "3.77")
    assert interpreters.find("3.77") == on_path
    named = machine.add(machine.home / "mine", "3.77")
    assert interpreters.find("3.77", ["nowhere", str(on_path.parent), str(named)]) == named
    assert interpreters.find("3.78", [str(named)]) is None


def test_a_program_that_only_says_that_it_cannot_is_passed_over(machine: Machine) -> None:
    """Checks programs like pyenv's on the PATH, which fail for versions that are not selected."""
    machine.add(machine.bin / "python3.77", "3.77", code=127)
    assert interpreters.find("3.77") is None
    machine.add(machine.bin / "python3.77", "3.12")
    assert interpreters.find("3.77") is None
    kept = machine.pyenv("3.77.1")
    assert interpreters.find("3.77") == kept
    kept.chmod(0o644)
    assert interpreters.find("3.77") is None


def test_the_interpreter_that_runs_this_is_the_last_resort(machine: Machine) -> None:
    assert interpreters.find(VERSION) == Path(sys.executable)


JUNIT = (
    '<testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/>'
    '<testsuite tests="1"/></testsuites>'
)


@pytest.mark.parametrize(
    ("text", "counts"),
    [(JUNIT, Counts(4, 3, 3)), ("<testsuites>", Counts(0, 1, 0)), (None, Counts(0, 1, 0))],
)
def test_a_report_is_counted_and_one_that_is_not_whole_is_a_failure(
    text: str | None, counts: Counts, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    if text is not None:
        report.write_text(text, encoding="utf-8")
    assert Counts.of(report) == counts


def test_results_are_kept_by_cell_and_those_of_cells_that_are_gone_are_not(tmp_path: Path) -> None:
    path = tmp_path / "build" / "matrix.json"
    assert results.load(path) == {}
    results.save({CELLS[0].name: GOOD, "3.9-4.0-newest": GOOD}, path)
    assert results.load(path) == {CELLS[0].name: GOOD}
    assert list(json.loads(path.read_text("utf-8"))) == ["cells"]


def test_the_table_has_a_row_for_every_cell_also_where_nothing_ran() -> None:
    left_out = Result("2026-01-01", why_not="no Python 3.12")
    first, second, third, *_ = results.table({CELLS[0].name: GOOD, CELLS[1].name: left_out}).split(
        "\n"
    )[2:]
    assert first.split(" | ")[:3] == [f"| `{CELLS[0].name}`", "3.10.1", "4.2.1"]
    assert first.endswith("| all | 7 | 0 | 1 | 2026-01-01 |")
    assert second.endswith("| no Python 3.12 |")
    assert third.endswith("| not run |")


def test_the_page_is_written_from_a_complete_run_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"not run: {CELLS[1].name}"):
        results.write_page({CELLS[0].name: GOOD}, page)
    assert page.read_text("utf-8") == text
    complete = {cell.name: GOOD for cell in CELLS}
    results.write_page(complete, page)
    written = page.read_text("utf-8")
    assert written == text.replace("old", results.table(complete))
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="has no marks"):
        results.write_page(complete, page)


def test_docs_compatibility_names_every_cell_as_it_was_run() -> None:
    text = results.PAGE.read_text("utf-8")
    table = text[text.index(results.BEGIN) : text.index(results.END)]
    titles, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()[1:]
        if line
    ]
    assert [row[0] for row in rows] == [f"`{cell.name}`" for cell in CELLS]
    for row, cell in zip(rows, CELLS, strict=True):
        told = dict(zip(titles, row, strict=True))
        if told["run on"] == results.NOT_RUN:
            continue
        assert told["Python"].startswith(f"{cell.python}.")
        assert told["PySpark"].startswith(f"{cell.pyspark}.")
        assert int(told["passed"]) > 0
        assert told["failed"] == "0"


class Runs:
    """Simulated runs of cells, with a record of the cells and an outcome."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = tmp_path / "matrix.json"
        self.of: list[str] = []
        self.missing: set[str] = set()
        self.outcome = GOOD
        monkeypatch.setattr(interpreters, "find", self.find)
        monkeypatch.setattr(program, "run", self.run)
        monkeypatch.setattr(results.load, "__defaults__", (self.file,))
        monkeypatch.setattr(results.save, "__defaults__", (self.file,))
        monkeypatch.delenv("CI", raising=False)

    def find(self, version: str, told: object = ()) -> Path | None:
        return None if version in self.missing else Path(sys.executable)

    def run(self, cell: Cell, interpreter: Path, arguments: object) -> Result:
        self.of.append(cell.name)
        return self.outcome


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_all_cells_run_and_a_table_ends_it(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    program.main([])
    assert runs.of == [cell.name for cell in CELLS]
    assert capsys.readouterr().out.endswith(f"{results.table(results.load())}\n")


def test_a_version_that_is_not_there_is_named_and_left_out(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.missing = {"3.12"}
    program.main([])
    assert "no Python 3.12 that can make environments; left out" in capsys.readouterr().out
    assert not [name for name in runs.of if name.startswith("3.12")]


def test_in_ci_or_asked_for_by_name_it_fails_the_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.missing = {"3.12"}
    wanted = next(cell.name for cell in CELLS if cell.python == "3.12")
    with pytest.raises(SystemExit, match=f"matrix: failed: {wanted}$"):
        program.main(["--cells", wanted])
    monkeypatch.setenv("CI", "true")
    with pytest.raises(SystemExit, match=f"matrix: failed: {wanted}"):
        program.main([])


@pytest.mark.parametrize(
    "outcome",
    [
        Result("2026-01-01", passed=5, failed=1),
        Result("2026-01-01", why_not="pip ended with 1"),
        Result("2026-01-01"),
    ],
)
def test_a_cell_that_fails_fails_the_run_and_the_others_run_all_the_same(
    runs: Runs, outcome: Result
) -> None:
    runs.outcome = outcome
    with pytest.raises(SystemExit, match="matrix: failed: "):
        program.main([])
    assert len(runs.of) == len(CELLS)


def test_an_unknown_cell_is_one_line_with_those_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix", "--cells", "2.7-1.6-lowest"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("matrix: no cell '2.7-1.6-lowest'; there are 3.10-4.2-lowest, ")

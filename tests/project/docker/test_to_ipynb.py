"""Notebooks in Databricks source format: converted to Jupyter's cell by cell, or not written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docker"))

import to_ipynb

TOP = Path(__file__).resolve().parents[3]
HEADER = "# Databricks notebook source\n"
SEPARATOR = "\n# COMMAND ----------\n"


def convert(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> str | None:
    """Converts a folder in this process; returns the error with which the program ends."""
    monkeypatch.setattr("sys.argv", ["to_ipynb.py", *map(str, folders)])
    try:
        to_ipynb.main()
    except SystemExit as end:
        return str(end.code)
    return None


def test_every_notebook_of_the_project_is_converted(tmp_path: Path) -> None:
    program = TOP / "docker" / "to_ipynb.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", program, TOP / "notebooks", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    sources = {path.stem: path.read_text("utf-8") for path in TOP.glob("notebooks/*.py")}
    stems = {stem for stem, text in sources.items() if text.startswith(HEADER)}
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{stem}.ipynb" for stem in stems),
        *(f"{stem}.py" for stem in sources.keys() - stems),
    }
    for stem in stems:
        cells = nbformat.read(tmp_path / f"{stem}.ipynb", as_version=4).cells
        assert cells[0].cell_type == "markdown"
        assert cells[0].source.startswith("# ")
        assert not [cell for cell in cells if "MAGIC" in cell.source or "COMMAND" in cell.source]
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        lines = [line for text in code for line in text.splitlines() if line]
        wanted = sources[stem].splitlines()[1:]
        not_code = ("# MAGIC", "# COMMAND ------")
        assert lines == [line for line in wanted if line and not line.startswith(not_code)]


def test_prose_keeps_its_lines_and_paragraphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prose = "# MAGIC %md\n# MAGIC ## Title\n# MAGIC\n# MAGIC A line and\n# MAGIC   another.\n"
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "n.py").write_text(HEADER + prose + SEPARATOR + "\nx = 1\n", encoding="utf-8")
    assert convert(monkeypatch, source, target) is None
    notebook = nbformat.read(target / "n.ipynb", as_version=4)
    assert [cell.source for cell in notebook.cells] == [
        "## Title\n\nA line and\n  another.",
        "x = 1",
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("n.py", HEADER + "# MAGIC %sql\n# MAGIC select 1\n", "begins with %sql; accepted are %md"),
        ("m.py", "x = 1\n", "holds no notebook"),
    ],
)
def test_what_cannot_be_converted_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / name).write_text(text, encoding="utf-8")
    if name == "n.py":
        (source / "good.py").write_text(HEADER + "x = 1\n", encoding="utf-8")
    error = convert(monkeypatch, source, target)
    assert error is not None
    assert said in error
    assert len(error.splitlines()) == 1
    assert list(target.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = convert(monkeypatch, TOP / "notebooks", tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(error)
    assert str(convert(monkeypatch, tmp_path)).startswith("usage: ")

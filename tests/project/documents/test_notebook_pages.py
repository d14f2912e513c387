"""The pages of notebooks: each is up to date with its notebook, and ran to its end.

These tests run no notebook: `make notebooks` and tests/spark/test_notebooks.py do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

TOP = Path(__file__).parents[3]
sys.path.insert(0, str(TOP / "docs" / "site"))

import render_notebooks  # noqa: E402 (a program of the site, and no package)

NAMES = render_notebooks.names()
PAGES = TOP / "docs" / "notebooks"
MAKE = "run: make notebooks ARGS={}"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


def rendered(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the renderer to its end."""
    command = [sys.executable, str(program), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_the_cells_of_its_notebook(name: str) -> None:
    begin = 0
    text = page(name)
    for part in render_notebooks.skeleton(render_notebooks.source(name), name):
        found = text.find(part, begin)
        assert found >= 0, f"{MAKE.format(name)}\n{part}"
        between = text[begin:found].strip()
        # Between two cells is the printed and drawn output of the first one.
        assert re.fullmatch(r"(```text\n.*?\n```|!\[[^\]]+\]\([^)]+\)|\s)*", between, re.DOTALL)
        begin = found + len(part)
    assert text[begin:] == "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_the_end_of_its_notebook_and_every_picture(name: str) -> None:
    text = page(name)
    assert re.search(r"```text\n[^\n]+\n```\n\nThe notebook: ", text)
    shown = set(re.findall(r"\]\(([^)]+\.png)\)", text))
    assert shown == {path.relative_to(PAGES).as_posix() for path in PAGES.glob(f"{name}/*")}
    assert len(shown) == (TOP / "notebooks" / f"{name}.py").read_text("utf-8").count("here.plot(")


def test_no_page_is_of_a_notebook_that_is_gone() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(NAMES)
    assert {path.name for path in PAGES.iterdir() if path.is_dir()} <= set(NAMES)


def test_pages_tell_nothing_of_the_machine() -> None:
    for name in NAMES:
        assert not re.search(r"(?<![\w.])/(tmp|home|root|work|usr)/", page(name)), name


def test_every_picture_is_small() -> None:
    large = [path for path in PAGES.rglob("*.png") if path.stat().st_size > 200_000]
    assert large == []


def test_the_index_links_to_every_page() -> None:
    index = (TOP / "docs" / "notebooks.md").read_text("utf-8")
    assert [name for name in NAMES if f"](notebooks/{name}.md)" not in index] == []


def test_what_a_cell_prints_and_draws_stands_behind_it() -> None:
    cell = new_code_cell("here.plot(lag_chart(), path)")
    cell.outputs = [
        new_output("stream", name="stdout", text="\x1b[1mtwo\nlines\x1b[0m\n"),
        new_output("stream", name="stderr", text="a warning\n"),
        new_output("display_data", {"image/png": "iVBORw0K", "text/plain": "an image"}),
    ]
    pictures: dict[str, bytes] = {}
    text, picture = render_notebooks.outputs(cell, "cell-3", "flights", pictures)
    assert text == "```text\ntwo\nlines\n```"
    assert picture == "![lag chart](flights/cell-3-2.png)"
    assert pictures == {"cell-3-2.png": b"\x89PNG\r\n"}


def test_links_of_a_notebook_lead_on_from_its_page() -> None:
    cells = [new_markdown_cell("See [the sink](../docs/sink.md)."), new_code_cell("1")]
    prose, code, end = render_notebooks.skeleton(new_notebook(cells=cells), "flights")
    assert prose == "See [the sink](../sink.md)."
    assert code == f"```python {render_notebooks.NOTE}\n1\n```"
    assert end == "The notebook: [flights.py](../../notebooks/flights.py)."


def test_a_notebook_that_fails_leaves_its_page_as_it_was(tmp_path: Path) -> None:
    """Runs the program in a copy of the folders that it uses."""
    program = "docs/site/render_notebooks.py"
    source, page = tmp_path / "notebooks/broken.py", tmp_path / "docs/notebooks/broken.md"
    for path in (tmp_path / program, tmp_path / "docker/to_ipynb.py", source, page):
        path.parent.mkdir(parents=True, exist_ok=True)
    for name in (program, "docker/to_ipynb.py"):
        shutil.copy(TOP / name, tmp_path / name)
    prose = "# Databricks notebook source\n# MAGIC %md\n# MAGIC # Broken\n"
    text = f"{prose}\n# COMMAND ----------\n\n1 / 0\n"
    source.write_text(text, "utf-8")
    page.write_text("old", "utf-8")
    done = rendered(tmp_path / program)
    assert done.returncode == 1
    assert "notebooks: broken has failed; its page is as before\n" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert page.read_text("utf-8") == "old"
    source.write_text(text.replace("1 / 0", "print(6 * 7)"), "utf-8")
    done = rendered(tmp_path / program)
    assert done.returncode == 0, done.stderr
    assert "```text\n42\n```" in page.read_text("utf-8")


def test_a_notebook_that_is_not_there_is_named() -> None:
    done = rendered(TOP / "docs/site/render_notebooks.py", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("notebooks: there is no 'nowhere'; there are clusters, ")

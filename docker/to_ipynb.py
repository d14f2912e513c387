"""Converter of notebooks in Databricks source format to notebooks that Jupyter opens.

Used in the build of the notebooks' image. Cells of prose become Markdown. Cells that install
packages or restart Python are removed: the image has the packages. Modules that are no notebooks
are copied. Nothing is written if a notebook has a cell that Jupyter could not run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HEADER = "# Databricks notebook source\n"
SEPARATOR = "\n# COMMAND ----------\n"
MAGIC = "# MAGIC"
LEFT_OUT = ("%pip", "%restart_python")
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def cell_of(text: str) -> NotebookNode | None:
    """Returns the cell that Jupyter shows; None if it needs none. Raises ValueError."""
    if not text.startswith(MAGIC):
        return NotebookNode(new_code_cell(text))
    lines = [line.removeprefix(MAGIC).removeprefix(" ") for line in text.splitlines()]
    magic = lines[0].partition(" ")[0]
    if magic == "%md":
        return NotebookNode(new_markdown_cell("\n".join(lines)[len(magic) :].strip()))
    if magic in LEFT_OUT:
        return None
    accepted = ", ".join(("%md", *LEFT_OUT))
    raise ValueError(f"a cell begins with {magic}; accepted are {accepted}, and Python")


def notebook_of(text: str) -> NotebookNode:
    """Returns the notebook in a source. Raises ValueError."""
    cells = [cell_of(cell.strip()) for cell in text.removeprefix(HEADER).split(SEPARATOR)]
    notebook: NotebookNode = new_notebook(
        cells=[cell for cell in cells if cell is not None], metadata={"kernelspec": KERNEL}
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # A random id would change with every build.
    nbformat.validate(notebook)
    return notebook


def convert(source: Path, target: Path) -> None:
    """Fills `target` with the content of `source`. Raises ValueError."""
    notebooks: dict[str, NotebookNode] = {}
    modules: list[Path] = []
    for path in sorted(source.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not text.startswith(HEADER):
            modules.append(path)
            continue
        try:
            notebooks[path.stem] = notebook_of(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if not notebooks:
        raise ValueError(f"{source} holds no notebook: none begins with {HEADER.strip()!r}")
    for stem, notebook in notebooks.items():
        nbformat.write(notebook, target / f"{stem}.ipynb")
    for path in modules:
        shutil.copy(path, target)


def main() -> None:
    """Converts the folder, or ends with a one-line error."""
    if len(sys.argv) != 3:
        sys.exit("usage: to_ipynb.py SOURCE_FOLDER TARGET_FOLDER")
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ValueError, OSError) as error:
        sys.exit(f"to_ipynb: {error}")


if __name__ == "__main__":
    main()

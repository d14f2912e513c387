"""Renderer of notebooks: runs them in Jupyter and writes pages with their outputs.

`make notebooks` fills `docs/notebooks/`: a page for each notebook, beside it a folder of its
pictures. A page is written when its notebook has ended; a notebook that fails leaves the old page
unchanged. tests/project/documents/test_notebook_pages.py compares pages with their notebooks.
"""

from __future__ import annotations

import base64
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP / "docker"))

from to_ipynb import HEADER, notebook_of  # noqa: E402 (beside the image that uses it, too)

# The pages are checked in, so a build of the site needs neither Spark nor minutes.
SOURCES, PAGES = TOP / "notebooks", TOP / "docs" / "notebooks"
CELL_SECONDS_MAX = 1200
# No test runs the cells of a page: the notebook has run as a whole.
NOTE = "notest: tests/spark/test_notebooks.py runs the notebook"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
# Documents link to each other relative to the notebook's folder.
_LINK = re.compile(r"\]\(\.\./docs/")


def names() -> list[str]:
    """Returns every notebook, without `.py`."""
    texts = {path.stem: path.read_text("utf-8") for path in sorted(SOURCES.glob("*.py"))}
    return [name for name, text in texts.items() if text.startswith(HEADER)]


def source(name: str) -> NotebookNode:
    """Returns a notebook without outputs."""
    return notebook_of((SOURCES / f"{name}.py").read_text("utf-8"))


def skeleton(notebook: NotebookNode, name: str) -> Iterator[str]:
    """Yields a page's part of each cell, without outputs."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield _LINK.sub("](../", cell.source)
        else:
            yield f"```python {NOTE}\n{cell.source}\n```"
    yield f"The notebook: [{name}.py](../../notebooks/{name}.py)."


def render(name: str) -> None:
    """Runs a notebook and writes its page. Raises CellExecutionError."""
    notebook = source(name)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS_MAX,
        kernel_name="python3",
        resources={"metadata": {"path": str(SOURCES)}},
    )
    client.execute()
    pictures: dict[str, bytes] = {}
    texts = list(skeleton(notebook, name))
    for number, cell in enumerate(notebook.cells):
        parts = list(outputs(cell, f"cell-{number}", name, pictures))
        texts[number] = "\n\n".join([texts[number], *parts])
    folder = PAGES / name
    shutil.rmtree(folder, ignore_errors=True)
    for file, content in pictures.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{name}.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def outputs(cell: NotebookNode, stem: str, name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yields a cell's text outputs, and links of its pictures, which it adds to `pictures`."""
    for number, output in enumerate(cell.get("outputs", [])):
        data = output.get("data", {})
        if output.output_type == "stream" and output.name == "stdout":
            text = _CONTROL.sub("", output.text).strip("\n")
            yield f"```text\n{text}\n```"
        elif "image/png" in data:
            file = f"{stem}-{number}.png"
            pictures[file] = base64.b64decode(data["image/png"])
            yield f"![{_title(cell)}]({name}/{file})"


def _title(cell: NotebookNode) -> str:
    """Returns a picture's alternative text: the name of the function that drew it."""
    drawn = re.search(r"here\.plot\((\w+)\(", cell.source)
    return drawn[1].replace("_", " ") if drawn else "a chart"


def main() -> None:
    """Renders the notebooks named on the command line, or all."""
    known = names()
    if unknown := [name for name in sys.argv[1:] if name not in known]:
        sys.exit(f"notebooks: there is no {unknown[0]!r}; there are {', '.join(known)}")
    for name in sys.argv[1:] or known:
        sys.stdout.write(f"notebooks: running {name}\n")
        sys.stdout.flush()
        try:
            render(name)
        except CellExecutionError as error:
            sys.exit(f"notebooks: {name} has failed; its page is as before\n{error}")


if __name__ == "__main__":
    main()

"""Results of a matrix run: `build/matrix.json`, and the table of docs/compatibility.md.

The file is written after each cell, so an interrupted run keeps its results; a cell that runs again
replaces its own result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.matrix.cells import CELLS, FULL, REFUSED, Cell

TOP = Path(__file__).parents[2]
FILE = TOP / "build" / "matrix.json"
PAGE = TOP / "docs" / "compatibility.md"
NOT_RUN = "not run"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
# Columns of the table: title -> library.
LIBRARIES = {
    "Python": "python",
    "PySpark": "pyspark",
    "protobuf": "protobuf",
    "grpcio": "grpcio",
    "PyArrow": "pyarrow",
    "NumPy": "numpy",
}
_SUITES = {FULL: "all", REFUSED: "is refused"}


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one cell on a day. `why_not` is why it did not run, or not to its end."""

    day: str
    versions: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    why_not: str = ""

    @property
    def is_good(self) -> bool:
        """True if every test that was to run has passed."""
        return bool(self.passed) and not self.failed and not self.why_not


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests by outcome. `failed` includes errors."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, report: Path) -> Counts:
        """Reads pytest's report in JUnit's format; counts an unreadable report as one failure."""
        try:
            suites = list(ET.parse(report).getroot().iter("testsuite"))
        except (OSError, ET.ParseError):
            return cls(failed=1)

        def total(*names: str) -> int:
            return sum(int(suite.get(name, "0")) for suite in suites for name in names)

        failed, skipped = total("failures", "errors"), total("skipped")
        return cls(total("tests") - failed - skipped, failed, skipped)


def load(path: Path = FILE) -> dict[str, Result]:
    """Returns results by cell name; empty if there was no run. Raises ValueError."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result(**result) for name, result in content["cells"].items()}


def save(results: dict[str, Result], path: Path = FILE) -> None:
    """Replaces the file; results of undeclared cells are removed."""
    declared = {cell.name: asdict(results[cell.name]) for cell in CELLS if cell.name in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": declared}, indent=2) + "\n", encoding="utf-8")


def table(results: dict[str, Result]) -> str:
    """Returns one row for each declared cell, in Markdown."""
    titles = ["cell", *LIBRARIES, "tests", "passed", "failed", "skipped", "run on"]
    lines = [titles, ["---"] * len(titles), *(_row(cell, results.get(cell.name)) for cell in CELLS)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(cell: Cell, result: Result | None) -> Iterator[str]:
    yield f"`{cell.name}`"
    found = result.versions if result else {}
    for library in LIBRARIES.values():
        yield found.get(library, "")
    yield _SUITES.get(cell.suite, "a selection")
    if result is None or result.why_not:
        yield from ("", "", "", result.why_not if result else NOT_RUN)
    else:
        yield from (str(result.passed), str(result.failed), str(result.skipped), result.day)


def write_page(results: dict[str, Result], page: Path = PAGE) -> None:
    """Writes the table between the page's marks. Raises ValueError if a cell was not run."""
    missing = [cell.name for cell in CELLS if not (results.get(cell.name) or Result("")).passed]
    if missing:
        raise ValueError(f"not run: {', '.join(missing)}; a page tells of a complete run")
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page} has no marks {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n{table(results)}\n{end}{after}", encoding="utf-8")

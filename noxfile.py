"""Cells of `make test-matrix`: a Python, a PySpark, other libraries, and tests.

    nox -s 3.10-4.2-lowest -- -k sink    runs a cell, here with arguments for pytest
    nox -s page                          puts the rows into docs/compatibility.md

A cell has a row in build/matrix as soon as all its tests have passed. Not every pair is run. Each
value occurs; the oldest Python is paired with the lowest versions of all libraries, the newest
Python with the newest. PySpark 4.3 requires Python 3.11.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree as ET

import nox
from nox.project import load_toml
from packaging.requirements import Requirement

TOP = Path(__file__).parent
ROWS = TOP / "build" / "matrix"
PAGE = TOP / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"

LOWEST, NEWEST = "lowest", "newest"
FULL, SELECTED, REFUSED = "all", "a selection", "is refused"

# Left out in every cell: they make environments with the newest libraries, or test documents and
# notebooks.
LEFT_OUT = (
    "tests/spark/test_documents.py",
    "tests/spark/test_notebooks.py",
)
# PySpark's Connect requires grpcio 1.76.
SPARK_CONNECT = ("tests/spark/test_connect.py",)

# The broker as a process, and its command line.
BROKER = (
    "tests/broker/cli",
    "tests/broker/metrics/test_http.py",
    "tests/broker/metrics/test_messages.py",
    "tests/broker/server",
    "tests/broker/embedded/test_local_broker.py",
    "tests/broker/embedded/test_client_calls.py",
    "tests/broker/embedded/test_process.py",
)
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        FULL: ("tests/unit", "tests/spark", *BROKER),
        # Streams and batches, source and sink, and their Arrow data and Spark plans.
        SELECTED: (
            "tests/unit",
            *(
                f"tests/spark/{what}.py"
                for what in (
                    "source/test_reader",
                    "source/test_source",
                    "sink/test_sink",
                    "exactly_once/test_exactly_once",
                    "source/test_expressions",
                    "sink/test_retries",
                    "test_sql",
                    "test_metrics",
                    "test_connect",
                )
            ),
            *BROKER,
        ),
        # A program, since the tests need a supported PySpark.
        REFUSED: ("tests/spark/errors/refused.py",),
    }
)
# The tests of `make test` and of `make docs`.
PYTEST = ("-m", "pytest", "-q", "-m", "not torture and not interop")
SIDE_BY_SIDE = ("--numprocesses", "5", "--dist", "loadgroup", "--max-worker-restart", "0")
# After Ctrl-C, tests end the processes that they started.
INTERRUPT_SECONDS_MAX = 60
# From the time of the lowest typer: newer ones warn about that typer's imports.
CLICK = "click==8.2.*"

# Columns of the table: title -> library.
LIBRARIES = {
    "PySpark": "pyspark",
    "protobuf": "protobuf",
    "grpcio": "grpcio",
    "PyArrow": "pyarrow",
    "NumPy": "numpy",
}
TITLES = ("cell", "Python", *LIBRARIES, "tests", "passed", "skipped", "run on")
PRINT_VERSIONS = (
    "import platform, sys; from importlib.metadata import version;"
    "print(platform.python_version(), *map(version, sys.argv[1:]))"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One environment. `python` and `pyspark` are versions without their last part."""

    python: str
    pyspark: str
    libraries: str
    suite: str

    @property
    def name(self) -> str:
        """Name in the table, on the command line and of the environment's folder."""
        return f"{self.python}-{self.pyspark}-{self.libraries}"

    @property
    def row(self) -> Path:
        """File with the cell's row of the table; absent until the cell has passed."""
        return ROWS / f"{self.name}.md"

    @property
    def tests(self) -> list[str]:
        """Files and folders that the cell runs, and the ones in them that it leaves out."""
        left_out = [*LEFT_OUT, *(SPARK_CONNECT if self.libraries == LOWEST else ())]
        named = [path for path in SUITES[self.suite] if path not in left_out]
        return [*named, *(f"--ignore={path}" for path in left_out)]

    @property
    def packages(self) -> list[str]:
        """Arguments of pip, which runs in the project's folder."""
        pyspark = f"pyspark=={self.pyspark}.*"
        if self.suite == REFUSED:
            return ["-e", ".", pyspark, "pandas<3"]
        # pandas is a dependency of tests, not of the package: Spark's own range applies.
        wanted = ["-e", ".[broker,metrics,security,test]", "pandas<3"]
        if self.libraries == LOWEST:
            return [*wanted, pyspark, *lowest(), CLICK]
        return [*wanted, pyspark.replace("pyspark", "pyspark[connect]", 1)]


CELLS = (
    Cell("3.10", "4.2", LOWEST, FULL),
    Cell("3.10", "4.2", NEWEST, SELECTED),
    Cell("3.11", "4.3", LOWEST, SELECTED),
    Cell("3.12", "4.2", NEWEST, SELECTED),
    Cell("3.12", "4.3", LOWEST, SELECTED),
    Cell("3.13", "4.2", NEWEST, SELECTED),
    Cell("3.13", "4.3", NEWEST, FULL),
    Cell("3.11", "4.1", NEWEST, REFUSED),
)


def lowest() -> list[str]:
    """Returns the lower bound of each library as the newest release of that version line."""
    project = load_toml(TOP / "pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"]]
    for name in ("broker", "metrics", "security"):
        texts += extras[name]
    bounds = [(each.name, at) for each in map(Requirement, texts) for at in each.specifier]
    return sorted({f"{name}=={at.version}.*" for name, at in bounds if at.operator == ">="})


def from_environment(name: str) -> list[str]:
    """Returns the words of an environment variable; commas separate them, too."""
    return os.environ.get(name, "").replace(",", " ").split()


def named_pythons() -> dict[str, str]:
    """Returns the interpreters that the user names, by version; the first of a version counts."""
    tell = "import sys; print('%d.%d' % sys.version_info[:2])"
    programs = reversed(from_environment("PYTHONS"))
    return {
        subprocess.check_output([program, "-c", tell], text=True).strip(): program
        for program in programs
    }


def run(session: nox.Session, cell: Cell) -> None:
    """Runs the tests of a cell, and writes its row."""
    cell.row.unlink(missing_ok=True)
    session.install(*cell.packages)
    python = f"{session.bin}/python"
    session.env.update(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    passed, skipped = 1, 0
    if cell.suite == REFUSED:
        session.run("python", *SUITES[REFUSED])
    else:
        report = cell.row.with_suffix(".xml")
        words = [*PYTEST, *SIDE_BY_SIDE, f"--junit-xml={report}", *cell.tests, *session.posargs]
        session.run("python", *words, interrupt_timeout=INTERRUPT_SECONDS_MAX)
        passed, skipped = counts(report)
    words = ["-c", PRINT_VERSIONS, *LIBRARIES.values()]
    versions = (session.run("python", *words, silent=True, log=False) or "").split()
    today = datetime.now(timezone.utc).date().isoformat()
    row = line(f"`{cell.name}`", *versions, cell.suite, str(passed), str(skipped), today)
    cell.row.parent.mkdir(parents=True, exist_ok=True)
    cell.row.write_text(row, encoding="utf-8")
    session.log(row.strip())


def counts(report: Path) -> tuple[int, int]:
    """Returns the numbers of passed and skipped tests in a report without failures."""
    suites = list(ET.parse(report).getroot().iter("testsuite"))
    skipped = sum(int(suite.get("skipped", "0")) for suite in suites)
    return sum(int(suite.get("tests", "0")) for suite in suites) - skipped, skipped


def line(*texts: str) -> str:
    """Returns a line of a table."""
    return f"| {' | '.join(texts)} |\n"


def declare(cell: Cell, python: str) -> None:
    """Declares the session of a cell."""

    @nox.session(name=cell.name, python=python)
    def session_of_cell(session: nox.Session) -> None:
        run(session, cell)


@nox.session(python=False, default=False)
def page(session: nox.Session) -> None:
    """Writes the table of docs/compatibility.md, if every cell has passed."""
    missing = [cell.name for cell in CELLS if not cell.row.exists()]
    if missing:
        session.error(f"cells without a result: {', '.join(missing)}. Run them first.")
    table = line(*TITLES) + line(*["---"] * len(TITLES))
    table += "".join(cell.row.read_text(encoding="utf-8") for cell in CELLS)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n{table}{after}", encoding="utf-8")


PYTHONS = named_pythons()
for each in CELLS:
    declare(each, PYTHONS.get(each.python, each.python))
nox.options.download_python = "never"
nox.options.sessions = from_environment("CELLS") or None
if nox.options.sessions:
    nox.options.error_on_missing_interpreters = True

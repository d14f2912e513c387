"""Cells of `make test-matrix`: a Python, a PySpark, other libraries, and tests.

Not every pair is run. Each value occurs; the oldest Python is paired with the lowest versions of
all libraries, the newest Python with the newest. PySpark 4.3 requires Python 3.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

LOWEST, NEWEST = "lowest", "newest"
FULL, SELECTED, REFUSED = "full", "selected", "refused"

# Left out in every cell: they make environments with the newest libraries, or test documents and
# notebooks.
LEFT_OUT = (
    "tests/spark/test_documents.py",
    "tests/spark/test_notebooks.py",
    "tests/unit/test_documents.py",
    "tests/unit/test_matrix.py",
    "tests/unit/test_notebook_pages.py",
    "tests/unit/test_packaging.py",
    "tests/unit/test_side_by_side.py",
    "tests/unit/test_site.py",
    "tests/unit/test_surroundings.py",
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
                f"tests/spark/test_{what}.py"
                for what in (
                    "reader",
                    "source",
                    "sink",
                    "exactly_once",
                    "expressions",
                    "retries",
                    "sql",
                    "metrics",
                    "connect",
                )
            ),
            *BROKER,
        ),
        # A program, since the tests need a supported PySpark.
        REFUSED: ("tests/spark/refused.py",),
    }
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
        """Name in the table, on the command line and in the environment's folder."""
        return f"{self.python}-{self.pyspark}-{self.libraries}"

    @property
    def tests(self) -> list[str]:
        """Files and folders that the cell runs, and the ones in them that it leaves out."""
        left_out = [*LEFT_OUT, *(SPARK_CONNECT if self.libraries == LOWEST else ())]
        named = [path for path in SUITES[self.suite] if path not in left_out]
        return [*named, *(f"--ignore={path}" for path in left_out)]


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

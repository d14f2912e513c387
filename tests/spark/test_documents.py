"""Python in the documents, run as a reader pastes it.

A program that neither ends nor changes its session runs in the tests' session: it finds one there,
as in a notebook. Every other program runs in a process of its own, with nothing activated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.documents import TOP, Block, programs
from tests.support.installation import SYSTEM_PATH
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = pytest.mark.docs
# tests/project/test_packaging.py runs these with what the README installs.
ELSEWHERE = [
    block for block in programs() if block.path == TOP / "README.md" or "send_back(" in block.text
]
BLOCKS = [block for block in programs() if block not in ELSEWHERE]
SHARING = [
    block
    for block in BLOCKS
    if "getOrCreate()" in block.text and not re.search(r"spark\.(stop|streams)\b", block.text)
]
ALONE = [block for block in BLOCKS if block not in SHARING]


def check_printed(block: Block, printed: list[str]) -> None:
    """Asserts that the program has printed, and the numbers that its comments say."""
    assert printed
    told = re.findall(r"^ *print\(.*\)  # (\d+)", block.text, re.MULTILINE)
    assert [line for line in printed if line in told] == told


@pytest.mark.parametrize("block", ALONE, ids=lambda block: block.name)
def test_a_program_of_a_document_runs_as_it_stands(block: Block, tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(block.text, encoding="utf-8")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")
    }
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**environment, "PATH": SYSTEM_PATH},
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    check_printed(block, done.stdout.splitlines())


@pytest.mark.parametrize("block", SHARING, ids=lambda block: block.name)
def test_a_program_of_a_document_runs_in_a_session_that_is_there(
    block: Block, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        exec(compile(block.text, block.name, "exec"), {"__name__": "__main__"})
    finally:
        for table in spark.catalog.listTables():
            spark.catalog.dropTempView(table.name)
    check_printed(block, capsys.readouterr().out.splitlines())


def test_programs_run_in_both_ways() -> None:
    assert len(SHARING) >= 4
    assert {block.path.name for block in ALONE} >= {"quick_start.md", "spark_metrics.md"}

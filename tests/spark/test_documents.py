"""Python in the documents, run as a reader pastes it, with nothing activated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import TOP, Block, programs
from tests.installation import SYSTEM_PATH
from tests.patience import PATIENCE_SECONDS

# The README's program runs in an environment of its own: tests/unit/test_packaging.py.
BLOCKS = [block for block in programs() if block.path != TOP / "README.md"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
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
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed
    told = re.findall(r"^ *print\(.*\)  # (\d+)", block.text, re.MULTILINE)
    assert [line for line in printed if line in told] == told

"""Skipped tests: the summary names them, and they fail a run of CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
CASES = {
    "a test": "import pytest\ndef test_it(): pytest.skip('no root')\n",
    "a mark": "import pytest\n@pytest.mark.skip(reason='no root')\ndef test_it(): pass\n",
    "a file": "import pytest\npytest.skip('no root', allow_module_level=True)\n",
}
PASSING = "def test_another(): pass\n"


def run(folder: Path, text: str, *, ci: str, shared_out: bool = False) -> tuple[int, str]:
    """Runs these tests; returns the exit code and the output."""
    (folder / "test_it.py").write_text(text)
    (folder / "test_other.py").write_text(PASSING)
    options = ["-p", "tests.skips", "-p", "no:cacheprovider", "-q", "--rootdir", str(folder)]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, *options, str(folder)]
    if shared_out:
        command += ["--numprocesses", "2"]
    # pytest options of the outer run do not apply to the inner one.
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(TOP), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("shared_out", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_skipped_test_fails_a_run_where_the_environment_says_ci(
    name: str, shared_out: bool, tmp_path: Path
) -> None:
    code, text = run(tmp_path, CASES[name], ci="true", shared_out=shared_out)
    assert code == 1
    assert "1 tests were skipped, and with CI=true that fails the run" in text
    assert "no root" in text


def test_a_skipped_test_is_named_with_its_reason_everywhere_else(tmp_path: Path) -> None:
    code, text = run(tmp_path, CASES["a test"], ci="")
    assert code == 0
    assert "1 tests were skipped:" in text
    assert "test_it.py::test_it: Skipped: no root" in text


@pytest.mark.parametrize(
    "text", [PASSING, "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"]
)
def test_a_run_without_skipped_tests_says_nothing_of_them(text: str, tmp_path: Path) -> None:
    code, said = run(tmp_path, text, ci="true")
    assert code == 0
    assert "what was not tested" not in said

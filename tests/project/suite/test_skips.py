"""Skipped tests: the summary names them, and they fail a run of CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plugins import skips

TOP = Path(__file__).parents[3]
SKIPPED = {
    "test_it": "import pytest\ndef test_it(): pytest.skip('no root')\n",
    "test_mark": "import pytest\n@pytest.mark.skip(reason='no disk')\ndef test_it(): pass\n",
    "test_file": "import pytest\npytest.skip('no strace', allow_module_level=True)\n",
}
PASSING = "def test_another(): pass\n"


def run(
    folder: Path, texts: dict[str, str], *, ci: str, shared_out: bool = False
) -> tuple[int, str]:
    """Runs these files of tests; returns the exit code and the output."""
    for name, text in {**texts, "test_other": PASSING}.items():
        (folder / f"{name}.py").write_text(text)
    options = ["-p", skips.__name__, "-p", "no:cacheprovider", "-q", "--rootdir", str(folder)]
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
def test_a_skipped_test_fails_a_run_where_the_environment_says_ci(
    shared_out: bool, tmp_path: Path
) -> None:
    code, text = run(tmp_path, SKIPPED, ci="true", shared_out=shared_out)
    assert code == 1
    assert "3 tests were skipped, and with CI=true that fails the run" in text
    assert all(reason in text for reason in ("no root", "no disk", "no strace"))


@pytest.mark.parametrize("name", SKIPPED)
def test_one_skipped_test_fails_a_run_too(name: str, tmp_path: Path) -> None:
    code, text = run(tmp_path, {name: SKIPPED[name]}, ci="true")
    assert code == 1
    assert "1 tests were skipped" in text


def test_a_skipped_test_is_named_with_its_reason_everywhere_else(tmp_path: Path) -> None:
    code, text = run(tmp_path, {"test_it": SKIPPED["test_it"]}, ci="")
    assert code == 0
    assert "1 tests were skipped:" in text
    assert "test_it.py::test_it: Skipped: no root" in text


@pytest.mark.parametrize(
    "text", [PASSING, "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"]
)
def test_a_run_without_skipped_tests_says_nothing_of_them(text: str, tmp_path: Path) -> None:
    code, said = run(tmp_path, {"test_it": text}, ci="true")
    assert code == 0
    assert "what was not tested" not in said

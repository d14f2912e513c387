"""Row X1: a known fault is planted into a copy of the packages, and the test that claims it fails.

So the tests are tested: one that passes whatever the code does would be noticed here.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.sabotage import SABOTAGES, Sabotage

TOP = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("broker_emulator/rocketpy_broker", "proto/rocketpy_proto")
OPTIONS = ("-q", "-rf", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=30")
FAILED = re.compile(r"^FAILED (\S+::.+?) - (.*)$", re.MULTILINE)
# What a row says if its change is no working program any more.
NOT_A_FAULT = re.compile(r"(Name|UnboundLocal|Import|ModuleNotFound|Syntax|Attribute)Error")
TESTS_FAILED = 1

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of pytest ended; `failed` is by test, with the error's first words."""

    exit_code: int
    failed: dict[str, str]
    output: str


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they are, compiled, with what they were made of left out."""
    folder = tmp_path_factory.mktemp("packages")
    for package in PACKAGES:
        shutil.copytree(
            TOP / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__")
        )
    assert compileall.compile_dir(folder, quiet=2)
    return folder


def run_tests(packages: Path, tests: set[str], folder: Path) -> Outcome:
    """Run some tests against the packages in a folder, in a process of their own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(packages), str(TOP / "connector")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "COLUMNS": "1000",
    }
    command = [sys.executable, "-m", "pytest", *OPTIONS, f"--basetemp={folder / 'tests'}"]
    done = subprocess.run(
        [*command, *sorted(tests)],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, dict(FAILED.findall(done.stdout)), done.stdout + done.stderr)


def plant(packages: Path, sabotage: Sabotage) -> None:
    """Change the text in place. Fails where it is not there exactly once."""
    path = packages / sabotage.path
    text = path.read_text(encoding="utf-8")
    assert text.count(sabotage.old) == 1, f"{sabotage.path} has not, or not only once: the old text"
    path.write_text(text.replace(sabotage.old, sabotage.new), encoding="utf-8")
    # The compiled file goes by the time and the size of its source, and both may be the same.
    Path(importlib.util.cache_from_source(str(path))).unlink()


def test_x1_without_a_fault_every_named_test_passes(packages: Path, tmp_path: Path) -> None:
    named = {test for sabotage in SABOTAGES for test in sabotage.noticed_by}
    outcome = run_tests(packages, named, tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert f"{len(named)} passed" in outcome.output


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_x1_a_planted_fault_is_noticed(packages: Path, tmp_path: Path, sabotage: Sabotage) -> None:
    copy = tmp_path / "packages"
    shutil.copytree(packages, copy)
    plant(copy, sabotage)
    outcome = run_tests(copy, set(sabotage.noticed_by), tmp_path)
    assert outcome.exit_code == TESTS_FAILED, outcome.output
    assert set(outcome.failed) == set(sabotage.noticed_by), outcome.output
    reasons = " ".join(outcome.failed.values())
    assert not NOT_A_FAULT.search(reasons), reasons

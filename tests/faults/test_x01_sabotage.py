"""Row X1: a known fault is planted into a copy of the packages, and the test that claims it fails.

So the tests are tested: one that passes whatever the code does would be noticed here.
"""

from __future__ import annotations

import ast
import compileall
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.forked_pytest import TOP, ForkedPytest
from tests.faults.sabotage import SABOTAGES as SABOTAGES_OF_THE_STORE
from tests.faults.sabotage import Sabotage
from tests.faults.sabotage_backup import BACKUP
from tests.faults.sabotage_batches import BATCHES
from tests.faults.sabotage_clock import CLOCK
from tests.faults.sabotage_clusters import CLUSTERS
from tests.faults.sabotage_config_files import CONFIG_FILES
from tests.faults.sabotage_growth import GROWTH
from tests.faults.sabotage_handover import HANDOVER
from tests.faults.sabotage_identity import IDENTITY
from tests.faults.sabotage_reads import READING
from tests.faults.sabotage_requests import REQUESTS
from tests.faults.sabotage_simulation import SIMULATION_SABOTAGES
from tests.faults.sabotage_waits import WAITING
from tests.patience import PATIENCE_SECONDS

SABOTAGES = (
    *(SABOTAGES_OF_THE_STORE + BATCHES + WAITING + SIMULATION_SABOTAGES),
    *(READING + IDENTITY + CLUSTERS + CLOCK + HANDOVER + GROWTH + REQUESTS + CONFIG_FILES + BACKUP),
)
PACKAGES = ("broker_emulator/rocketpy_broker", "proto/rocketpy_proto", "connector/pyspark_rocketpy")
FAILED = re.compile(r"^FAILED (\S+::.+?) - (.*)$", re.MULTILINE)
# A test that fails by one of these has met a broken program, and not the fault that was meant.
BROKEN = re.compile(r"\b(Name|UnboundLocal|Import|ModuleNotFound|Syntax|Attribute|Type)Error\b")
TESTS_FAILED = 1
TIMED_OUT = "Timeout (>"
# A test that hangs by its fault has less time. All others end by themselves, however busy the
# machine is, and a test that runs out of time has noticed nothing.
HANGING_SECONDS_MAX = 15

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def forked_pytest() -> Iterator[ForkedPytest]:
    """Runs tests."""
    with ForkedPytest() as started:
        yield started


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they are, compiled."""
    folder = tmp_path_factory.mktemp("packages")
    no_compiled = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(TOP / package, folder / Path(package).name, ignore=no_compiled)
    assert compileall.compile_dir(folder, quiet=2)
    return folder


def planted(path: Path, sabotage: Sabotage) -> str:
    """The text of `path` with the fault. Fails where the old text is not there exactly once."""
    text = path.read_text(encoding="utf-8")
    assert text.count(sabotage.old) == 1, f"{sabotage.path} has no longer, or twice: {sabotage.old}"
    return text.replace(sabotage.old, sabotage.new)


def plant(packages: Path, sabotage: Sabotage) -> None:
    """Changes the text; what it was before may be linked from elsewhere."""
    path = packages / sabotage.path
    text = planted(path, sabotage)
    path.unlink()
    path.write_text(text, encoding="utf-8")
    # A compiled file goes by the second and the size of its source, and both may be the same.
    Path(importlib.util.cache_from_source(str(path))).unlink()


def test_x1_every_fault_can_be_planted_and_leaves_a_program() -> None:
    folders = {Path(package).name: TOP / package for package in PACKAGES}
    for sabotage in SABOTAGES:
        folder, inside = sabotage.path.split("/", 1)
        ast.parse(planted(folders[folder] / inside, sabotage), sabotage.name)


def test_x1_without_a_fault_every_named_test_passes(
    forked_pytest: ForkedPytest, packages: Path, tmp_path: Path
) -> None:
    named = sorted({test for sabotage in SABOTAGES for test in sabotage.noticed_by})
    outcome = forked_pytest.run(named, packages, tmp_path, PATIENCE_SECONDS)
    assert outcome.exit_code == 0, outcome.output
    assert f"\n{len(named)} passed in" in outcome.output


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_x1_a_planted_fault_is_noticed(
    forked_pytest: ForkedPytest, packages: Path, tmp_path: Path, sabotage: Sabotage
) -> None:
    copy = tmp_path / "packages"
    shutil.copytree(packages, copy, copy_function=os.link)
    plant(copy, sabotage)
    seconds_max = HANGING_SECONDS_MAX if sabotage.hangs else PATIENCE_SECONDS
    outcome = forked_pytest.run(sabotage.noticed_by, copy, tmp_path, seconds_max)
    assert outcome.exit_code == TESTS_FAILED, outcome.output
    failed = dict(FAILED.findall(outcome.output))
    assert failed.keys() == set(sabotage.noticed_by), outcome.output
    assert not BROKEN.search(" ".join(failed.values())), outcome.output
    assert all((TIMED_OUT in error) == sabotage.hangs for error in failed.values()), outcome.output

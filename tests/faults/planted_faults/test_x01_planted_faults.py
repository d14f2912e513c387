"""Planted faults: the test that claims a known fault fails with it.

A test that passes whatever the code does is detected here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.planted_faults.forked_pytest import ForkedPytest
from tests.faults.planted_faults.known_faults import FAULTS
from tests.faults.planted_faults.planted import Fault
from tests.support.time_limits import WAIT_SECONDS_MAX

FAILED = re.compile(r"^FAILED (\S+::.+?) - (.*)$", re.MULTILINE)
# A test that fails by one of these errors found a broken program, not the planted fault.
BROKEN = re.compile(r"\b(Name|UnboundLocal|Import|ModuleNotFound|Syntax|Attribute|Type)Error\b")
TESTS_FAILED = 1
# A test that runs out of time has noticed nothing.
TIMED_OUT = "Timeout (>"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * WAIT_SECONDS_MAX)]


NAMED = sorted({test for fault in FAULTS for test in fault.noticed_by})


@pytest.fixture(scope="module")
def forked_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPytest]:
    """Yields a runner of the named tests."""
    with ForkedPytest(NAMED, tmp_path_factory.mktemp("named"), WAIT_SECONDS_MAX) as started:
        yield started


def test_x1_without_a_fault_named_tests_pass(
    forked_pytest: ForkedPytest, tmp_path: Path, seed: int
) -> None:
    """Asserts that a fork alone makes no test fail, with other named tests each time."""
    some = random.Random(seed).sample(NAMED, len(NAMED) // 4)
    outcome = forked_pytest.run(some, tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert f"\n{len(some)} passed in" in outcome.output


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_x1_a_planted_fault_is_noticed(
    forked_pytest: ForkedPytest, tmp_path: Path, fault: Fault
) -> None:
    outcome = forked_pytest.run(fault.noticed_by, tmp_path, fault.name)
    assert outcome.exit_code == TESTS_FAILED, outcome.output
    failed = dict(FAILED.findall(outcome.output))
    assert failed.keys() == set(fault.noticed_by), outcome.output
    assert not BROKEN.search(" ".join(failed.values())), outcome.output
    assert not any(TIMED_OUT in error for error in failed.values()), outcome.output

"""Fault counts in docs/guarantees.md: equal to the counts of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import test_f12_two_brokers, test_m01_model
from tests.faults import test_f15_reader_beside_cleaner as test_f15_reader_while_cleaning
from tests.faults.damage import test_f04_torn_pages, test_f05_bit_flips, test_f06_derived_files
from tests.faults.disks import test_f02_power_cut, test_f07_full_disk, test_f08_failing_calls
from tests.faults.kills import test_f01_kill, test_f10_killed_recovery, test_t01_transactions
from tests.faults.pairs import test_h04_failovers, test_h05_links, test_h05_pairs
from tests.faults.planted_faults import known_faults
from tests.faults.simulation import test_m02_simulation
from tests.faults.simulation.pair import test_m03_pair_simulation
from tests.support.documents import TOP
from tests.support.plugins.cases import counts_of

GUARANTEES = TOP / "docs" / "guarantees.md"
KILLS = test_f01_kill.KILLS_QUICK + test_f01_kill.BROKER_KILLS_QUICK
KILLS_TORTURE = test_f01_kill.KILLS_TORTURE + test_f01_kill.BROKER_KILLS_TORTURE
COMBINATIONS = 2 * (len(test_f06_derived_files.WAYS) + 1) << len(test_f06_derived_files.KINDS)
LINKS = len(test_h05_links.ROLES)
# Start of a row -> its text about the fault or the number of tries.
SAID = {
    "store or broker killed": f"| {KILLS} ({KILLS_TORTURE:,}) |",
    "power cut of a real": (
        f"| {test_f02_power_cut.CUTS_QUICK} ({test_f02_power_cut.CUTS_TORTURE:,}) |"
    ),
    "pages of 512 B": (
        f"| {test_f04_torn_pages.HYBRIDS_QUICK} ({test_f04_torn_pages.HYBRIDS_TORTURE:,}) |"
    ),
    "every bit": f"; {test_f05_bit_flips.RANDOM_FLIPS_QUICK:,} (100,000) |",
    "queues, index": f"| {COMBINATIONS} + {test_f06_derived_files.CHANCES_QUICK} |",
    "masters of a": f"| {test_h04_failovers.QUICK} ({test_h04_failovers.TORTURE:,}) |",
    "recovery killed": (
        f" + {test_f10_killed_recovery.KILLS_QUICK} ({test_f10_killed_recovery.KILLS_TORTURE:,}) |"
    ),
    "reading while": (
        f"| {test_f15_reader_while_cleaning.ROUNDS_QUICK:,} rounds "
        f"({test_f15_reader_while_cleaning.ROUNDS_TORTURE:,}) |"
    ),
    "full disk": (
        f"| {test_f07_full_disk.ROUNDS_QUICK} rounds ({test_f07_full_disk.ROUNDS_TORTURE}) |"
    ),
    "the n-th system call": (
        f"each of {len(test_f08_failing_calls.CALLS)} calls "
        f"with {len(test_f08_failing_calls.ERRORS)} errors |"
    ),
    # The number in brackets is of a shorter run than `make torture` has.
    "anything of all this": (
        f"| {test_m01_model.EXAMPLES_QUICK} runs of {test_m01_model.STEPS_QUICK} steps ("
    ),
    "transactions: the broker killed": (
        f"each of {len(test_t01_transactions.PLACES)} steps of prepare, decide, re-put, op mark, "
        f"check-back | {test_t01_transactions.KILLS_QUICK} kills each |"
    ),
    "delays, transactions": f"| {test_m02_simulation.SEEDS_QUICK} runs of an hour or more |",
    "master, slave": f"| {len(test_m03_pair_simulation.SEEDS_QUICK)} runs |",
    "link between": (
        f"| {LINKS * test_h05_links.CUTS_QUICK} cuts ({LINKS * test_h05_links.CUTS_TORTURE}) |"
    ),
    "processes of a master": (
        f"| each of {len(test_h05_pairs.FAULTS)} faults "
        f"({len(test_h05_pairs.ROLES) * test_h05_pairs.ROUNDS_TORTURE} of them) |"
    ),
    "disks of a master": f"| each of {len(test_h05_pairs.OF_DISKS)} faults |",
    "a master that lies": f"| {len(test_h05_links.LIES)} lies |",
    "two brokers": (
        f"| {test_f12_two_brokers.RACES_QUICK} races ({test_f12_two_brokers.RACES_TORTURE}) |"
    ),
    "faults planted": f"| {len(known_faults.FAULTS)} |",
}


def row(begin: str) -> str:
    lines = GUARANTEES.read_text(encoding="utf-8").splitlines()
    [found] = [line for line in lines if line.startswith(f"| {begin}")]
    return found


@pytest.mark.parametrize("begin", SAID)
def test_a_fault_was_tried_as_often_as_the_table_says(begin: str) -> None:
    assert SAID[begin] in row(begin)


def test_a_directory_changed_hands_as_often_as_the_table_says() -> None:
    def cases(folder: str) -> int:
        counts = counts_of(sorted(Path(TOP / "tests", folder).glob("test_*.py")))
        return sum(counts[name] for name in counts if name.startswith("test_f16"))

    by_brokers, by_files = cases("interop/handover"), cases("store/recovery")
    said = f"| {by_brokers} cases (`make interop`), {by_files} by files alone"
    assert said in row("the directory changes hands")

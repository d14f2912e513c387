"""Known faults of a master and its slave; the simulation of a pair detects them."""

from __future__ import annotations

from tests.faults.planted_faults.planted import Fault, always, nothing_awaited

SERVICES = "rocketpy_broker.services."
SEEDS = (
    "tests/faults/simulation/pair/test_m03_pair_simulation.py::"
    "test_m3_no_seed_of_a_pair_breaks_a_promise"
)

PAIR_FAULTS = (
    Fault(
        "a master acknowledges before its slave has the message",
        SERVICES + "replication.confirmations.Confirmations.has",
        always(True),
        (f"{SEEDS}[12]",),
    ),
    Fault(
        "a slave takes no offsets",
        SERVICES + "offsets.committed.ConsumerOffsetManager.replicate",
        nothing_awaited,
        (f"{SEEDS}[12]",),
    ),
    Fault(
        "align cuts nothing",
        SERVICES + "slave.alignment.LogAlignment.cut",
        lambda _: lambda _self, found: found,
        (f"{SEEDS}[12]",),
    ),
    Fault(
        "a slave keeps removals of topics that its master does not have",
        SERVICES + "slave.log_sync.LogSync._undo_removals",
        nothing_awaited,
        tuple(
            "tests/broker/replication/promotion/test_h04_removals.py::"
            f"test_h04_topics_that_the_old_master_removed_last_are_back_on_it[later{number}]"
            for number in range(2)
        ),
    ),
)

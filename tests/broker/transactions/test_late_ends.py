"""The oldest transaction ends last: ended ones after it are skipped in steps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions import table
from rocketpy_broker.services.transactions.messages import OP_QUEUE, Operation, OpMessage
from rocketpy_broker.services.transactions.table import PASSED_A_STEP, TransactionTable
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import COMMIT, end, prepare, rounds

COUNT = 3 * PASSED_A_STEP + 7


def ended(offset: int, op_offset: int) -> OpMessage:
    return OpMessage(op_offset, (offset,), Operation.COMMIT)


def test_n12_t05_hundreds_of_thousands_that_are_over_are_passed_over_in_steps() -> None:
    known = TransactionTable()
    # The last one ends first, so its op message is needed until all are over.
    for op_offset, offset in enumerate([COUNT, *range(1, COUNT)]):
        known.note(ended(offset, op_offset))
    assert (known.next_half, known.next_op) == (0, 0)
    known.note(ended(0, COUNT))
    steps = [known.next_half, known.next_op]
    assert known.open_count(COUNT + 3) == 2
    while known.advance():
        steps += [known.next_half, known.next_op]
    halves, ops = [0, *steps[::2], known.next_half], [0, *steps[1::2], known.next_op]
    for places in (halves, ops):
        assert max(after - before for before, after in pairwise(places)) == PASSED_A_STEP
        assert places[-1] == COUNT + 1


def progress(running: RunningBroker) -> tuple[int, int]:
    known = running.broker.services.transactions.listing._table
    return known.next_half, known.next_op


@pytest.mark.parametrize("how", ["a round of checks", "a clean stop"])
async def test_n12_t05_a_round_and_a_stop_pass_over_all_of_them(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(table, "PASSED_A_STEP", 2)
    async with start_broker() as running:
        await running.create_topic("T")
        halves = [await prepare(running, str(number)) for number in range(10)]
        for half in reversed(halves):
            assert await end(running, half, COMMIT) == 0
        assert progress(running) < (10, 10)
        if how == "a round of checks":
            await rounds(running)
            assert progress(running) == (10, 10)
    async with start_broker(clock=running.clock) as running:
        assert progress(running) == (10, 10)
        store = running.broker.store
        assert [store.range_of(each).max_offset for each in (HALF_QUEUE, OP_QUEUE)] == [10, 10]
        committed = running.broker.services.offsets.offsets._consumers
        group = "CID_RMQ_SYS_TRANS"
        assert [committed.query(group, *each) for each in (HALF_QUEUE, OP_QUEUE)] == [10, 10]

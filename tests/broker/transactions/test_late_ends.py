"""The oldest transaction ends last: ended ones after it are skipped in steps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import OP_QUEUE, Operation, OpMessage
from rocketpy_broker.services.transactions.table import PASSED_A_STEP, TransactionTable
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import (
    COMMIT,
    LARGE,
    append_commits,
    append_halves,
    end,
    prepare,
    rounds,
)

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
    start_broker: StartBroker, how: str
) -> None:
    count = PASSED_A_STEP + 7
    async with start_broker(**LARGE) as running:
        await running.create_topic("T")
        oldest = await prepare(running, "oldest")
        append_halves(running, count - 1)
        append_commits(running, *[[offset] for offset in range(count - 1, 0, -1)])
    async with start_broker(clock=running.clock, **LARGE) as running:
        assert await end(running, oldest, COMMIT) == 0
        assert progress(running) == (PASSED_A_STEP, 0)
        if how == "a round of checks":
            await rounds(running)
            assert progress(running) == (count, count)
    async with start_broker(clock=running.clock, **LARGE) as running:
        assert progress(running) == (count, count)
        store = running.broker.store
        ends = [store.range_of(each).max_offset for each in (HALF_QUEUE, OP_QUEUE)]
        assert ends == [count, count]
        committed = running.broker.services.offsets.offsets._consumers
        group = "CID_RMQ_SYS_TRANS"
        assert [committed.query(group, *each) for each in (HALF_QUEUE, OP_QUEUE)] == ends

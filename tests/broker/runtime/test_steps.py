"""Work of the broker's own in steps. Passes of the loop are counted, not timed."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.services.delay.timer import service as timer
from tests.broker.delay.test_levels import bodies, visible
from tests.broker.delay.test_times import NOW_MS, send_at
from tests.support.broker.event_loop import counted_slots, most_in_a_pass
from tests.support.broker.retries import DEAD_LETTER, RETRY, Meant, answered, outcome, send
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

LONG = b"x" * (4 << 20)


@pytest.mark.parametrize(("level", "to", "copies"), [(0, RETRY, 2), (-1, DEAD_LETTER, 1)])
async def test_b09_r01_a_long_message_is_sent_back_in_steps(
    start_broker: StartBroker, level: int, to: int, copies: int
) -> None:
    slots_taken = []
    async with start_broker(commit_log_segment_bytes=64 << 20) as running:
        await running.create_topic("T")
        for body in (b"short", LONG):
            offset = await send(running, body)
            async with counted_slots() as slots:
                assert await outcome(running, offset, level) == (0, to, "")
            slots_taken.append(len(slots))
    short, long = slots_taken
    assert long == short + copies


async def test_b09_r01_messages_that_are_tried_one_by_one_leave_turns_to_others(
    running: RunningBroker,
) -> None:
    """Covers a first message that is too long with the properties of a message sent back."""
    await running.create_topic("T")
    offsets = [await send(running, b"long", much="x" * 32_700)]
    offsets += [await send(running, b"%d" % number) for number in range(20)]
    statistics = running.broker.store.statistics
    before = statistics.put_message_count
    answering = asyncio.ensure_future(answered(running, *(Meant(offset, 1) for offset in offsets)))
    assert await most_in_a_pass(answering, lambda: statistics.put_message_count) == 1
    answer = answering.result()
    assert [bool(each.status.code) for each in answer.messages] == [True] + [False] * 20
    assert statistics.put_message_count - before == 20


async def test_b09_c08_pulls_that_one_message_wakes_look_at_it_one_after_the_other(
    running: RunningBroker,
) -> None:
    count = 20
    await running.create_topic("T")
    fields = {"expression_type": "SQL92", "expression": "a = 1 OR TRUE", "wait_ms_max": 30_000}
    pulls = [running.pull(topic="T", queue_id=0, offset=0, **fields) for _ in range(count)]
    answers = asyncio.gather(*pulls)
    await running.held(count)
    statistics = running.broker.store.statistics
    before = statistics.get_found_count
    work = asyncio.gather(answers, running.append("T", 0, b"1"))
    assert await most_in_a_pass(work, lambda: statistics.get_found_count) == 1
    found, _ = work.result()
    assert [each[0].next_offset for each in found] == [1] * count
    assert statistics.get_found_count - before == count


async def overdue(running: RunningBroker, count: int) -> None:
    """Sends messages due in as many seconds, and advances the clock past all of them."""
    texts = [b"%d" % number for number in range(count)]
    await send_at(running, [NOW_MS + 1_000 * number + 1_500 for number in range(count)], *texts)
    while running.broker.services.delay.timer.read_offset < count:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)
    running.clock.advance(1_000 * count + 2_000)


async def test_b09_d03_of_messages_long_overdue_few_seconds_are_taken_at_a_turn(
    start_broker: StartBroker,
) -> None:
    count, most = 500, 0
    async with start_broker() as running:
        await running.create_topic("T")
        await overdue(running, count)
        pending = running.broker.services.delay.timer.pending
        before = len(pending)
        while visible(running) < count:
            await asyncio.sleep(0)
            most, before = max(most, before - len(pending)), len(pending)
        assert await bodies(running) == [b"%d" % number for number in range(count)]
        assert len(pending) == 0
    assert most == timer.SLOT_ENTRIES


async def test_b09_d04_a_stop_while_overdue_messages_are_taken_leaves_them_to_deliver(
    start_broker: StartBroker,
) -> None:
    count = 500
    async with start_broker() as running:
        await running.create_topic("T")
        await overdue(running, count)
        pending = running.broker.services.delay.timer.pending
        while len(pending) != count - timer.SLOT_ENTRIES:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0)
        assert visible(running) == 0
    async with start_broker(clock=running.clock) as running:
        await until(lambda: visible(running) == count)
        assert await bodies(running) == [b"%d" % number for number in range(count)]


async def test_b09_d03_reading_what_is_due_and_releasing_it_are_two_steps(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await overdue(running, 1)
    statistics = running.broker.store.statistics
    before = statistics.put_message_count
    async with counted_slots() as slots:
        while statistics.put_message_count == before:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0)
    # After the read, and before the release.
    assert len(slots) == 2

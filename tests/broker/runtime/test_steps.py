"""Work of the broker's own in steps. Passes of the loop are counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.delay.timer import service as timer
from rocketpy_broker.services.filters.service import Sql92Filter
from rocketpy_broker.services.retry import service
from rocketpy_broker.store.message_store import MessageStore
from tests.broker.delay.test_levels import bodies, visible
from tests.broker.delay.test_times import NOW_MS, send_at
from tests.support.broker.retries import DEAD_LETTER, RETRY, Meant, answered, outcome, send
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

LONG = b"x" * (4 << 20)


class Steps:
    """Calls of functions of the broker, and the pass of the loop that each was in."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._pass = 0
        self._calls: list[tuple[str, int]] = []

    def note(self, owner: Any, name: str) -> None:
        """Notes calls of a function from now on."""
        real: Callable[..., Any] = getattr(owner, name)

        def noting(*given: Any, **more: Any) -> Any:
            self._calls.append((name, self._pass))
            return real(*given, **more)

        self._patch.setattr(owner, name, noting)

    async def during(self, work: asyncio.Future[Any]) -> Any:
        """Runs the loop to the end of the work; returns its result."""
        while not work.done():
            await asyncio.sleep(0)
            self._pass += 1
        return await work

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self._calls]

    @property
    def passes(self) -> list[int]:
        return [number for _, number in self._calls]


@pytest.mark.parametrize(
    ("level", "to", "names"),
    [(0, RETRY, ["sent_back", "redirect", "append"]), (-1, DEAD_LETTER, ["sent_back", "append"])],
)
async def test_b09_r01_a_long_message_is_sent_back_in_steps(
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    level: int,
    to: int,
    names: list[str],
) -> None:
    steps = Steps(monkeypatch)
    async with start_broker(commit_log_segment_bytes=64 << 20) as running:
        await running.create_topic("T")
        offset = await send(running, LONG)
        steps.note(service, "sent_back")
        steps.note(DelaySchedule, "redirect")
        steps.note(MessageStore, "append")
        (code, found, _) = await steps.during(
            asyncio.ensure_future(outcome(running, offset, level))
        )
        assert (code, found) == (0, to)
    assert steps.names == names
    assert len(set(steps.passes)) == len(names)


async def test_b09_r01_messages_that_are_tried_one_by_one_leave_turns_to_others(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a first message that is too long with the properties of a message sent back."""
    steps = Steps(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        offsets = [await send(running, b"long", much="x" * 32_700)]
        offsets += [await send(running, b"%d" % number) for number in range(20)]
        steps.note(MessageStore, "append")
        answer = await steps.during(
            asyncio.ensure_future(answered(running, *(Meant(offset, 1) for offset in offsets)))
        )
        assert [bool(each.status.code) for each in answer.messages] == [True] + [False] * 20
    assert len(set(steps.passes)) == len(steps.passes) == 20


async def test_b09_c08_pulls_that_one_message_wakes_look_at_it_one_after_the_other(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, steps = 20, Steps(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        fields = {"expression_type": "SQL92", "expression": "a = 1 OR TRUE", "wait_ms_max": 30_000}
        pulls = [running.pull(topic="T", queue_id=0, offset=0, **fields) for _ in range(count)]
        answers = asyncio.gather(*pulls)
        await running.held(count)
        steps.note(Sql92Filter, "matches")
        found = await steps.during(asyncio.gather(answers, running.append("T", 0, b"1")))
        assert [each[0].next_offset for each in found[0]] == [1] * count
    assert len(set(steps.passes)) == len(steps.passes) == count


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
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        steps.note(timer, "tombstoned_rows")
        await overdue(running, 1)
        steps.note(MessageStore, "append")

        async def come() -> None:
            while visible(running) < 1:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0)

        await steps.during(asyncio.ensure_future(come()))
    assert steps.names == ["tombstoned_rows", "append"]
    assert len(set(steps.passes)) == 2

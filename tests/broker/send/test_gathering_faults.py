"""Single messages of one pass that do not go together: each fails and waits alone."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.record import RecordBlock
from tests.broker.send.test_batcher import DAMAGED, Answer, message, places, send_all
from tests.support.blocks import WireBlock
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import noted_writes
from tests.support.time_limits import WAIT_SECONDS_MAX

DELAYED = message(b"later", DELAY="1")


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[RecordBlock]:
    """Returns a list of the stored blocks."""
    return noted_writes(monkeypatch)


async def test_p06_queues_are_chosen_in_turn_also_beside_a_message_that_is_refused(
    running: RunningBroker,
) -> None:
    """Guards against two choices a message: half of the queues or more would get none."""
    await running.create_topic("T")
    pair = (ANY_QUEUE, message(b"m")), (ANY_QUEUE, DAMAGED)
    chosen = [places(await send_all(running, *pair))[0][0] for _ in range(4)]
    # The turn between is that of the message that is refused.
    assert chosen in ([0, 2, 0, 2], [1, 3, 1, 3], [2, 0, 2, 0], [3, 1, 3, 1])


async def test_p01_a_property_named_as_long_as_that_of_a_delay_hinders_nobody(
    appended: list[RecordBlock], running: RunningBroker
) -> None:
    await running.create_topic("T")
    answers = await send_all(running, *[(0, message(b"m", color="red"))] * 10)
    assert [len(block) for block in appended] == [10]
    assert places(answers) == [(0, offset) for offset in range(10)]


@pytest.mark.parametrize("place", [0, 37, 99])
@pytest.mark.parametrize(
    "wrong", [DAMAGED, DELAYED, message(b"no disk", WAIT="false")], ids=["bad", "waits", "no disk"]
)
async def test_b09_one_message_that_does_not_go_with_others_leaves_the_others_together(
    appended: list[RecordBlock], wrong: WireBlock, place: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    sent = [(0, message(b"%d" % number)) for number in range(100)]
    sent[place] = (0, wrong)
    answers = await send_all(running, *sent)
    assert len(appended) <= 8
    kept = [each for each in answers if isinstance(each, Stored)]
    in_queue = [each for each in kept if each.result.queue.topic == "T"]
    assert [each.result.queue_offset for each in in_queue] == list(range(len(in_queue)))
    assert len(in_queue) == (100 if b"WAIT" in wrong.records else 99)


async def test_b09_what_is_gathered_is_no_larger_than_a_small_block(
    appended: list[RecordBlock], running: RunningBroker
) -> None:
    """Guards against a hundred times as much work of the loop in one scheduler slot."""
    await running.create_topic("T")
    one = message(bytes(SMALL_BYTES_MAX // 3))
    answers = await send_all(running, *[(0, one)] * 7)
    assert [len(block) for block in appended] == [2, 2, 2, 1]
    assert max(len(block.data) for block in appended) <= SMALL_BYTES_MAX
    assert places(answers) == [(0, offset) for offset in range(7)]


@pytest.mark.parametrize("properties", [{}, {"WAIT": "true"}, {"DELAY": "1"}])
async def test_s14_a_sender_whose_room_others_took_waits_for_the_disk_and_is_not_refused(
    start_broker: StartBroker, properties: dict[str, str]
) -> None:
    limits = Limits(unflushed_bytes_max=3_000)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        await running.create_topic("T")
        sending = send_all(running, *[(0, message(bytes(1_000), **properties))] * 150)
        answers: list[Answer] = await asyncio.wait_for(sending, WAIT_SECONDS_MAX)
        assert [type(each) for each in answers] == [Stored] * 150
        assert running.broker.services.sends._store.statistics.put_failed_count == 0

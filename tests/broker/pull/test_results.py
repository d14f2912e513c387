"""Results of the store as codes and offsets for clients."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.pull.checks import NO_END
from rocketpy_broker.services.pull.outcome import response_code
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT_BYTES
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.running_broker import RunningBroker

FOUND, RETRY = ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY
NOT_FOUND, MOVED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
# By status: for offset 0, and for any other.
CODES = {
    GetMessageStatus.FOUND: (FOUND, FOUND),
    GetMessageStatus.NO_MATCHED_MESSAGE: (RETRY, RETRY),
    GetMessageStatus.MESSAGE_WAS_REMOVING: (RETRY, RETRY),
    GetMessageStatus.OFFSET_FOUND_NULL: (NOT_FOUND, NOT_FOUND),
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: (MOVED, MOVED),
    GetMessageStatus.OFFSET_OVERFLOW_ONE: (NOT_FOUND, NOT_FOUND),
    GetMessageStatus.OFFSET_TOO_SMALL: (MOVED, MOVED),
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: (NOT_FOUND, MOVED),
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: (NOT_FOUND, MOVED),
    GetMessageStatus.OFFSET_RESET: (MOVED, MOVED),
}


@pytest.mark.parametrize("status", list(GetMessageStatus))
def test_c05_every_status_has_its_code(status: GetMessageStatus) -> None:
    result = GetMessageResult(status, 5, 0, 9)
    codes = tuple(response_code(result, offset, NO_END) for offset in (0, 3))
    assert codes == CODES[status]


def test_c05_a_range_in_which_nothing_matches_has_been_read() -> None:
    result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 5, 0, 9)
    assert [response_code(result, 3, end) for end in (5, 6)] == [FOUND, RETRY]


def test_the_protocol_has_every_status_by_its_number() -> None:
    for status in GetMessageStatus:
        assert broker_pb2.PullStatus.Name(int(status)) == status.name


def told(answer: broker_pb2.PullResponse) -> tuple[int, str, int]:
    return (
        answer.status.code,
        broker_pb2.PullStatus.Name(answer.pull_status),
        answer.next_offset,
    )


async def last(running: RunningBroker, offset: int, queue_id: int = 0) -> tuple[int, str, int]:
    return told((await running.pull(topic="T", queue_id=queue_id, offset=offset))[-1])


async def test_c05_offsets_are_corrected_to_where_the_queue_begins_or_ends(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for _ in range(3):
        await running.append("T", 0, *[bytes(30_000)] * 20)
    assert await last(running, 60) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 60)
    assert await last(running, 61) == (MOVED, "OFFSET_OVERFLOW_BADLY", 60)
    assert await last(running, 1 << 61) == (MOVED, "OFFSET_OVERFLOW_BADLY", 60)
    assert await last(running, 0, 1) == (NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0)
    assert await last(running, 1, 1) == (MOVED, "NO_MATCHED_LOGIC_QUEUE", 0)
    removal = running.broker.store.plan_removal()
    removal.run()
    running.broker.store.removed(removal)
    low = running.broker.store.range_of(QueueKey("T", 0)).min_offset
    assert 0 < low < 60
    assert await last(running, 0) == (MOVED, "OFFSET_TOO_SMALL", low)
    assert await last(running, low - 1) == (MOVED, "OFFSET_TOO_SMALL", low)
    assert (await last(running, low))[:2] == (FOUND, "FOUND")


async def test_c05_a_lost_message_is_passed_over_by_the_next_pull(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a", b"b", b"c")
    queue = running.broker.store._queues.get(QueueKey("T", 0))
    assert queue is not None
    units = queue.units(1, 2).copy()
    units["size"] = BLANK_SIZE
    queue._files.write(UNIT_BYTES, units.tobytes())
    assert await last(running, 1) == (RETRY, "MESSAGE_WAS_REMOVING", 2)
    assert (await last(running, 2))[:2] == (FOUND, "FOUND")

"""A message's keys are bounded: two bytes make one, and each costs memory and time."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.send.destination import KEYS_MAX, KEYS_OF_EACH, KEYS_PER_MESSAGE_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker

ONE_TOO_MANY = " ".join(["k"] * (KEYS_PER_MESSAGE_MAX + 1))
MOST = " ".join(["k"] * KEYS_PER_MESSAGE_MAX)


async def send(running: RunningBroker, block: WireBlock) -> tuple[int, str]:
    answer = await running.append_block("T", 0, block)
    return answer.status.code, answer.status.remark


@pytest.mark.parametrize("count", [1, 2, 5, 60])
async def test_n12_a_message_with_too_many_keys_is_refused(
    count: int, running: RunningBroker
) -> None:
    """Covers messages that are gathered, small, or checked in a thread."""
    await running.create_topic("T")
    keys = [MOST] * (count - 1) + [ONE_TOO_MANY]
    code, remark = await send(running, wire_block("T", [b"x"] * count, keys=keys))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert f"record {count - 1}" in remark
    assert "1025 keys in a message, limit 1024" in remark
    good = wire_block("T", [b"x"] * count, keys=[MOST] * count)
    assert await send(running, good) == (ResponseCode.SUCCESS, "")
    found = running.broker.store.positions()
    assert found.log_end == len(good.records)


async def test_n12_a_block_with_too_many_keys_is_refused(running: RunningBroker) -> None:
    # Each message has the maximum of keys.
    count = KEYS_MAX // (KEYS_PER_MESSAGE_MAX - KEYS_OF_EACH) + 1
    await running.create_topic("T")
    code, remark = await send(running, wire_block("T", [b"x"] * count, keys=[MOST] * count))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert f"{count * KEYS_PER_MESSAGE_MAX} keys, limit" in remark
    assert "send smaller blocks" in remark
    good = wire_block("T", [b"x"] * (count - 1), keys=[MOST] * (count - 1))
    assert (await send(running, good))[0] == ResponseCode.SUCCESS


async def test_n12_a_staged_block_with_too_many_keys_is_refused(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        block = wire_block("T", [b"x"], keys=[ONE_TOO_MANY])
        request = broker_pb2.StageBlocksRequest(
            job=broker_pb2.BatchJob(writer_id="w", batch_id=1, job_token=1),
            task_token=1,
            topic="T",
            records=block.records,
            record_sizes=block.record_sizes,
        )
        answer = await running.data.StageBlocks(iter([request])).read()
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "1025 keys" in answer.status.remark

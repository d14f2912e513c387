"""Messages sent back through a real server, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.record import Record, decode_record
from rocketpy_proto.record.block.record_block import scatter_headers
from rocketpy_proto.rocketpy.v1 import retry_pb2, retry_pb2_grpc
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.running_broker import RunningBroker

GROUP = "g"
RETRY_TOPIC, DEAD_LETTERS = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
RETRY, DEAD_LETTER, DROPPED = retry_pb2.RETRY, retry_pb2.DEAD_LETTER, retry_pb2.DROPPED


@dataclass
class Meant:
    """A message that is sent back."""

    offset: int
    level: int = 0
    msg_id: str = ""
    topic: str = ""


async def answered(
    running: RunningBroker,
    *messages: Meant,
    group: str = GROUP,
    times_max: int | None = None,
) -> retry_pb2.SendBackResponse:
    """Returns the whole answer to one call."""
    request = retry_pb2.SendBackRequest(
        consumer_group=group,
        messages=[
            retry_pb2.MessageToSendBack(
                commit_log_offset=each.offset,
                delay_level=each.level,
                origin_msg_id=each.msg_id,
                origin_topic=each.topic,
            )
            for each in messages
        ],
        max_reconsume_times=times_max,
    )
    stub = retry_pb2_grpc.RetryStub(running.channel)
    response: retry_pb2.SendBackResponse = await stub.SendBack(request)
    return response


async def outcome(
    running: RunningBroker, offset: int, level: int = 0, **more: Any
) -> tuple[int, int, str]:
    """Sends one message back; returns its code, its destination, and the remark."""
    answer = await answered(running, Meant(offset, level), **more)
    assert answer.status.code == 0, answer.status.remark
    (found,) = answer.messages
    return found.status.code, found.to, found.status.remark


async def refusal(running: RunningBroker, *messages: Meant, **more: Any) -> tuple[int, str]:
    """Returns code and remark of a call that is refused as a whole."""
    answer = await answered(running, *messages, **more)
    assert not answer.messages
    return answer.status.code, answer.status.remark


def with_times(block: WireBlock, times: int) -> WireBlock:
    """Returns the block with messages that were delivered `times` times."""
    parsed = block.parsed()
    parsed.header["reconsume_times"] = times
    scatter_headers(parsed.data, parsed.positions, parsed.header)
    return WireBlock(parsed.data.tobytes(), block.record_sizes)


async def send(
    running: RunningBroker, body: bytes = b"x", *, times: int = 0, topic: str = "T", **given: str
) -> int:
    """Sends one message; returns its position in the log."""
    properties = {name: [value] for name, value in given.items()}
    block = with_times(wire_block(topic, [body], tags="A", properties=properties), times)
    answer = await running.append_block(topic, 0, block)
    assert answer.status.code == 0, answer.status.remark
    return answer.physical_offset


def count(running: RunningBroker, topic: str = RETRY_TOPIC, queue_id: int = 0) -> int:
    return running.broker.store.range_of(QueueKey(topic, queue_id)).max_offset


async def records(
    running: RunningBroker, topic: str = RETRY_TOPIC, queue_id: int = 0, offset: int = 0
) -> list[Record]:
    """Returns all records that a reader of the queue sees."""
    if count(running, topic, queue_id) <= offset:
        return []
    found = []
    for response in await running.pull(topic=topic, queue_id=queue_id, offset=offset):
        position = 0
        while position < len(response.records):
            decoded = decode_record(response.records, position)
            found.append(decoded.record)
            position += decoded.size
    return found


async def set_group(running: RunningBroker, **fields: Any) -> None:
    await running.broker.services.groups.configs.update(SubscriptionGroupConfig(GROUP, **fields))

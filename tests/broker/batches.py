"""A writer of prepared batches, as the sink is one."""

from __future__ import annotations

from rocketpy_broker.response_code import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.blocks import bodies_of, wire_block
from tests.broker.conftest import RunningBroker

WRITER = "a query"
TOKEN = -77


async def prepare(
    running: RunningBroker,
    queue_id: int,
    *bodies: bytes,
    token: int = TOKEN,
    topic: str = "T",
) -> broker_pb2.PreparedRange:
    """Append a prepared block; what a commit has to say about it."""
    block = wire_block(topic, bodies, tags="tag", keys=[body.decode() for body in bodies])
    request = broker_pb2.AppendRequest(
        topic=topic,
        queue_id=queue_id,
        records=block.records,
        record_sizes=block.record_sizes,
        prepared_token=token,
    )
    response: broker_pb2.AppendResponse = await running.data.Append(iter([request])).read()
    assert response.status.code == ResponseCode.SUCCESS, response.status.remark
    return broker_pb2.PreparedRange(
        topic=topic,
        queue_id=response.queue_id,
        physical_offset=response.physical_offset,
        length=len(block.records),
        record_count=response.record_count,
    )


async def commit(
    running: RunningBroker,
    batch_id: int,
    *ranges: broker_pb2.PreparedRange,
    token: int = TOKEN,
    writer_id: str = WRITER,
) -> broker_pb2.CommitBatchResponse:
    """Ask for a batch."""
    request = broker_pb2.CommitBatchRequest(
        writer_id=writer_id, batch_id=batch_id, prepared_token=token, ranges=ranges
    )
    response: broker_pb2.CommitBatchResponse = await running.data.CommitBatch(request)
    return response


async def bodies(running: RunningBroker, queue_id: int = 0, topic: str = "T") -> list[bytes]:
    """Every message of a queue."""
    found: list[bytes] = []
    for response in await running.pull(topic=topic, queue_id=queue_id):
        found += bodies_of(response.records, response.record_sizes)
    return found

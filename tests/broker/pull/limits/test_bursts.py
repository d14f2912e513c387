"""Many calls at once: gRPC itself would cancel some of more than a thousand."""

from __future__ import annotations

import asyncio

from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.running_broker import RunningBroker

CALLS = 2_000


async def test_n14_no_call_of_a_burst_is_cut_off(running: RunningBroker) -> None:
    await running.create_topic("T")
    request = broker_pb2.PullRequest(topic="T", queue_id=0, wait_ms_max=9_000)
    calls = [running.data.Pull(request) for _ in range(CALLS)]
    reads = [asyncio.ensure_future(call.read()) for call in calls]
    await running.held(CALLS)
    await running.append("T", 0, b"x")
    answers = await asyncio.gather(*reads)
    assert {answer.next_offset for answer in answers} == {1}

"""Requests that decode into millions of parts are refused before they are decoded."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.response_code import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.conftest import RunningBroker, StartBroker

# Of the size that a broker receives: each part takes two bytes.
PARTS = 3 << 20


def parts(request: type[Any], field: str) -> bytes:
    """A request with so many empty parts."""
    return bytes([request.DESCRIPTOR.fields_by_name[field].number << 3 | 2, 0]) * PARTS


async def call(running: RunningBroker, service: str, method: str, data: bytes) -> bytes:
    method_call: Any = running.channel.unary_unary(f"/rocketpy.v1.{service}/{method}")
    answer: bytes = await method_call(data)
    return answer


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("QueryOffsets", "known"),
        ("QueryOffsets", "topics"),
        ("SearchOffsets", "queues"),
        ("QueryConsumerOffsets", "queues"),
        ("CommitOffsets", "offsets"),
        ("MeasureRanges", "ranges"),
        ("LimitRanges", "ranges"),
    ],
)
async def test_s12_a_request_of_millions_of_parts_is_refused(
    start_broker: StartBroker, method: str, field: str
) -> None:
    async with start_broker() as running:
        data = parts(getattr(broker_pb2, f"{method}Request"), field)
        answer = await call(running, "Broker", method, data)
        status = getattr(broker_pb2, f"{method}Response").FromString(answer).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert f"bytes of the request is {len(data)}, accepted is" in status.remark


async def test_s12_a_list_of_millions_of_names_is_refused(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        data = parts(admin_pb2.ListTopicsRequest, "topics")
        answer = await call(running, "Admin", "ListTopics", data)
        status = admin_pb2.ListTopicsResponse.FromString(answer).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert "bytes of the request is" in status.remark


async def test_c03_a_pull_with_a_million_tags_codes_is_refused(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        [answer] = await running.pull(topic="T", tags_codes=[1] * 1_000_000)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "bytes of the request is 8000" in answer.status.remark


@pytest.mark.parametrize("field", ["known", "topics"])
async def test_k05_an_offset_query_about_too_many_is_refused(
    start_broker: StartBroker, field: str
) -> None:
    async with start_broker() as running:
        request = bytes(
            [broker_pb2.QueryOffsetsRequest.DESCRIPTOR.fields_by_name[field].number << 3 | 2, 0]
        )
        answer = await call(running, "Broker", "QueryOffsets", request * 32_769)
        status = broker_pb2.QueryOffsetsResponse.FromString(answer).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert f"number of {field} is 32769, accepted is 32768 or fewer" in status.remark

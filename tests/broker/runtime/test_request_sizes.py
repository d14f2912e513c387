"""Requests that decode into millions of parts are refused before they are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.server.request_parts import has_more_parts
from rocketpy_broker.server.rocketpy_v1.handlers import LARGE_PARTS_MAX
from rocketpy_proto.call_limits import (
    ENTRIES_MAX,
    KEYS_BYTES_MAX,
    KEYS_MAX,
    OFFSET_QUERY_ENTRIES_MAX,
)
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    broker_pb2,
    groups_pb2,
    retry_pb2,
    transactions_pb2,
)
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker

METHODS = {
    f"{service.name}.{method.name}": method
    for messages in (admin_pb2, broker_pb2, groups_pb2, retry_pb2, transactions_pb2)
    for service in messages.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

# Of the size that a broker receives: each part takes two bytes.
PARTS = 3 << 20


def parts(request: type[Any], field: str) -> bytes:
    """Returns a request with `PARTS` empty parts."""
    return bytes([request.DESCRIPTOR.fields_by_name[field].number << 3 | 2, 0]) * PARTS


async def call(running: RunningBroker, service: str, method: str, data: bytes) -> bytes:
    method_call: Any = running.channel.unary_unary(f"/rocketpy.v1.{service}/{method}")
    answer: bytes = await method_call(data)
    return answer


async def first_answer(
    running: RunningBroker,
    method: MethodDescriptor,
    data: bytes,
    metadata: Sequence[tuple[str, str]] = (),
) -> Any:
    """Returns the first response of a method of any kind, to a request in bytes."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming:
        streamed: Any = running.channel.stream_stream(path)
        answer = await streamed(iter([data]), metadata=metadata).read()
    elif method.server_streaming:
        stream: Any = running.channel.unary_stream(path)
        answer = await stream(data, metadata=metadata).read()
    else:
        unary: Any = running.channel.unary_unary(path)
        answer = await unary(data, metadata=metadata)
    return GetMessageClass(method.output_type).FromString(answer)


@pytest.mark.parametrize("name", METHODS)
async def test_s12_no_method_decodes_millions_of_parts(
    start_broker: StartBroker, name: str
) -> None:
    """Sends parts of field 1, whatever they are for the method, or of no field."""
    async with start_broker() as running:
        answer = await first_answer(running, METHODS[name], b"\x0a\x00" * PARTS)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert " of the request is " in answer.status.remark


async def test_s12_a_stream_goes_on_behind_a_request_of_too_many_parts(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        block = wire_block("T", [b"body"])
        good = broker_pb2.AppendRequest(
            topic="T", records=block.records, record_sizes=block.record_sizes
        )
        stream: Any = running.channel.stream_stream("/rocketpy.v1.Broker/Append")
        requests = stream(iter([b"\x0a\x00" * PARTS, good.SerializeToString()]))
        answers = [broker_pb2.AppendResponse.FromString(data) async for data in requests]
    codes = [answer.status.code for answer in answers]
    assert codes == [ResponseCode.INVALID_PARAMETER, ResponseCode.SUCCESS]


def test_s12_long_fields_are_few_parts() -> None:
    tasks = broker_pb2.StagedTasks(task=range(200_000), task_token=range(200_000))
    request = broker_pb2.CommitBatchRequest(
        job=broker_pb2.BatchJob(writer_id="w"), tasks=tasks, wait_ms_max=1
    )
    data, message = request.SerializeToString(), broker_pb2.CommitBatchRequest
    # Job, writer, tasks, two columns, and the time.
    assert [has_more_parts(data, message, count) for count in (5, 6)] == [True, False]


@pytest.mark.parametrize(
    "part",
    [
        b"\x0a\x00",
        b"\x18\x01",
        b"\x19" + bytes(8),
        b"\x1d" + bytes(4),
        b"\xfa\x7f\x00",
        b"\x0b\x0c",
        b"\x12\x02\x08\x01",
    ],
    ids=["message", "varint", "fixed64", "fixed32", "unknown", "group", "message of one"],
)
def test_s12_parts_of_every_wire_type_count_wherever_they_are(part: bytes) -> None:
    message = broker_pb2.CommitBatchRequest
    parts = part * (LARGE_PARTS_MAX + 1)
    assert has_more_parts(parts, message, LARGE_PARTS_MAX)
    within = b"\x12" + bytes([len(parts) & 0x7F | 0x80, len(parts) >> 7]) + parts
    assert has_more_parts(within, message, LARGE_PARTS_MAX)
    assert not has_more_parts(part, message, LARGE_PARTS_MAX) or part == b"\x0b\x0c"


@pytest.mark.parametrize("data", [b"\x80" * 12, b"\x12\xff\xff\xff\x7f", b"\x0a", b"\x19\x00", b""])
def test_s12_what_is_malformed_or_cut_is_left_to_the_decoder(data: bytes) -> None:
    assert not has_more_parts(data, broker_pb2.CommitBatchRequest, LARGE_PARTS_MAX)


async def test_k05_the_longest_query_of_keys_is_answered(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        topic = "T" * 127
        await running.create_topic(topic, queues=1_000)
        ranges = [
            broker_pb2.OffsetRange(topic=topic, queue_id=each, end=1) for each in range(1_000)
        ]
        keys = ["k" * (KEYS_BYTES_MAX // KEYS_MAX)] * KEYS_MAX
        answer = await running.data.FindKeys(broker_pb2.FindKeysRequest(ranges=ranges, keys=keys))
    assert (answer.status.code, answer.range_count) == (ResponseCode.SUCCESS, 1_000)


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("QueryOffsets", "known"),
        ("QueryOffsets", "topics"),
        ("SearchOffsets", "queues"),
        ("QueryConsumerOffsets", "queues"),
        ("CommitOffsets", "offsets"),
        ("FindKeys", "ranges"),
        ("FindKeys", "keys"),
        ("CheckFilter", "expression"),
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


async def test_n12_a_name_that_is_repeated_is_listed_once(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        request = admin_pb2.ListTopicsRequest(topics=["T"] * OFFSET_QUERY_ENTRIES_MAX)
        answer = await running.admin.ListTopics(request)
        assert [config.topic for config in answer.configs] == ["T"]
        request.topics.append("T")
        refused = await running.admin.ListTopics(request)
    assert refused.status.code == ResponseCode.INVALID_PARAMETER
    assert f"number of topics is {OFFSET_QUERY_ENTRIES_MAX + 1}" in refused.status.remark


async def test_n12_a_commit_of_too_many_queues_is_refused(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        one = broker_pb2.CommittedOffset(topic="T", queue_id=0, offset=0)
        request = broker_pb2.CommitOffsetsRequest(consumer_group="g", offsets=[one] * ENTRIES_MAX)
        assert (await running.data.CommitOffsets(request)).status.code == ResponseCode.SUCCESS
        request.offsets.append(one)
        refused = await running.data.CommitOffsets(request)
    assert refused.status.code == ResponseCode.INVALID_PARAMETER
    assert f"number of offsets is {ENTRIES_MAX + 1}" in refused.status.remark

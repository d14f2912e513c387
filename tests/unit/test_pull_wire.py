"""The hand-written wire form of messages with records: protobuf reads it, and writes the same."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.pull_wire import (
    BlockRequest,
    PullResponseParts,
    deserialize,
    serialize,
    serialize_block,
)
from rocketpy_proto.rocketpy.v1 import broker_pb2, common_pb2

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HEADS = st.builds(
    broker_pb2.PullResponse,
    status=st.builds(common_pb2.Status, code=st.integers(0, 300), remark=st.text(max_size=20)),
    pull_status=st.integers(0, 9),
    next_offset=INT64,
    min_offset=INT64,
    max_offset=INT64,
    record_sizes=st.binary(max_size=40),
)
PARTS = st.lists(st.binary(max_size=300), max_size=3)


@given(HEADS, PARTS)
def test_what_is_written_by_hand_is_read_by_protobuf(
    head: broker_pb2.PullResponse, parts: list[bytes]
) -> None:
    data = serialize(PullResponseParts(head, [memoryview(part) for part in parts]))
    read = broker_pb2.PullResponse.FromString(data)
    assert read.records == b"".join(parts)
    read.records = b""
    assert read == head


@pytest.mark.parametrize("request_of", [broker_pb2.AppendRequest, broker_pb2.StageBlocksRequest])
@pytest.mark.parametrize("records", [b"", b"r", bytes(1 << 21)])
def test_a_block_is_written_as_protobuf_writes_it(
    request_of: type[broker_pb2.AppendRequest], records: bytes
) -> None:
    head = request_of(topic="T", queue_id=3, record_sizes=b"sizes")
    written = serialize_block(BlockRequest(head, records))
    read = request_of.FromString(written)
    assert read.records == records
    head.records = records
    assert (read, len(written)) == (head, head.ByteSize())


@given(HEADS, st.binary(max_size=300))
def test_what_protobuf_writes_is_read_by_hand(
    head: broker_pb2.PullResponse, records: bytes
) -> None:
    whole = broker_pb2.PullResponse()
    whole.CopyFrom(head)
    whole.records = records
    read = deserialize(whole.SerializeToString())
    assert bytes(read.records[0]) == records
    assert read.head == head


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_as_protobuf_does(data: bytes) -> None:
    try:
        expected = broker_pb2.PullResponse.FromString(data)
    except DecodeError:
        expected = None
    try:
        read = deserialize(data)
    except (ValueError, DecodeError):
        return
    if expected is not None:
        assert bytes(read.records[0]) == expected.records


def test_a_field_that_is_cut_off_is_refused() -> None:
    data = broker_pb2.PullResponse(records=b"x" * 300).SerializeToString()
    with pytest.raises(ValueError, match="ends at byte"):
        deserialize(data[:-1])

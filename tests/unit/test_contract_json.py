"""JSON of the contract's messages."""

from __future__ import annotations

import json

import pytest
from google.protobuf.message import Message

from rocketpy_broker.contract_json import KEYS, fields_of, json_of
from rocketpy_broker.server.http.api.routes import ROUTES
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2

TIME_MS = 1_777_622_400_123
TIME = "2026-05-01T08:00:00.123Z"


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (groups_pb2.Connection(last_update_ms=TIME_MS), {"lastUpdateTimestamp": TIME}),
        (admin_pb2.WaitingSegments(until_timestamp_ms=0), {"until": None, "segments": 0}),
        (
            admin_pb2.TopicQueueStatus(min_offset=2, max_offset=5, last_store_timestamp_ms=-1),
            {"lastStoreTimestamp": None, "messages": 3},
        ),
        (admin_pb2.LatencyBucket(at_most_ms=-1), {"atMostMs": None}),
        (broker_pb2.QueueOffsets(committed_offset=-1), {"committedOffset": None}),
        (broker_pb2.QueueOffsets(committed_offset=0), {"committedOffset": 0, "cutOffset": None}),
        (broker_pb2.QueueOffsets(max_offset=1 << 62), {"maxOffset": 1 << 62}),
        (groups_pb2.GroupSummary(topics=["a"]), {"topics": ["a"], "consumeType": None}),
        (
            groups_pb2.GroupSummary(consume_type=groups_pb2.CONSUME_POP),
            {"consumeType": "CONSUME_POP"},
        ),
        (groups_pb2.GetGroupResponse(), {"config": None, "members": 0}),
        (
            admin_pb2.TopicConfig(attributes={"b": "2", "a": "1"}),
            {"attributes": {"a": "1", "b": "2"}},
        ),
    ],
)
def test_a_field_has_its_key_and_a_value_of_json(
    message: Message, found: dict[str, object]
) -> None:
    value = json_of(message)
    assert {key: value[key] for key in found} == found
    assert json.loads(json.dumps(value)) == value


def test_a_status_and_records_are_left_out() -> None:
    message = broker_pb2.PullResponse(
        records=b"x", record_sizes=b"\0\0\0\1", pull_status=broker_pb2.FOUND
    )
    message.status.code = 5
    assert json_of(message).keys() == {
        *("pullStatus", "nextOffset", "minOffset", "maxOffset", "suggestedBrokerId")
    }


def test_the_keys_of_an_answer_differ_and_the_exceptions_are_of_fields_that_exist() -> None:
    kinds = {route.answer for route in ROUTES}
    for kind in kinds:
        keys = [field.key for field in fields_of(kind)]
        assert len({*keys}) == len(keys)
    modules = (admin_pb2, groups_pb2, broker_pb2)
    fields = {
        f"{name}.{field}"
        for module in modules
        for name, kind in module.DESCRIPTOR.message_types_by_name.items()
        for field in kind.fields_by_name
    }
    assert KEYS.keys() <= fields

"""A long text in any field of any request: a remark repeats only its start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.runtime.test_request_sizes import METHODS, first_answer
from tests.support.broker.running_broker import RunningBroker, StartBroker

LONG = "x" * 400_000
# Values of the other fields, so that the broker reaches the long one.
OTHERS = {"topic": "T", "default_topic": "T", "consumer_group": "g", "client_id": "c"}


def texts_of(message: Descriptor) -> Iterator[list[str]]:
    """Yields the path of each text field."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield [field.name]
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from ([field.name, *path] for path in texts_of(field.message_type))


def with_long(message: Descriptor, path: list[str]) -> dict[str, Any]:
    """Returns the fields of a message with a long text at `path`."""
    name, *rest = path
    field = message.fields_by_name[name]
    inner = field.message_type
    value = LONG if inner is None else with_long(inner, rest)
    others = {other: text for other, text in OTHERS.items() if other in message.fields_by_name}
    return {**others, name: [value] if field.is_repeated else value}


@pytest.mark.parametrize("name", METHODS)
async def test_n12_a_long_text_gets_a_short_remark(start_broker: StartBroker, name: str) -> None:
    method = METHODS[name]
    request = GetMessageClass(method.input_type)
    async with start_broker() as running:
        await running.create_topic("T")
        for path in texts_of(method.input_type):
            data = request(**with_long(method.input_type, path)).SerializeToString()
            answer = await first_answer(running, method, data)
            shown = max(map(len, re.findall("x+", answer.status.remark)), default=0)
            assert shown <= 200, path
            assert len(answer.status.remark) <= 1_000


async def test_n12_a_key_longer_than_any_is_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    for count, code in (
        (PROPERTIES_BYTES_MAX, ResponseCode.SUCCESS),
        (PROPERTIES_BYTES_MAX + 1, ResponseCode.INVALID_PARAMETER),
    ):
        request = admin_pb2.QueryMessageRequest(topic="T", key="k" * count)
        answer = await running.admin.QueryMessage(request)
        assert answer.status.code == code
    assert "accepted is up to 32767 characters" in answer.status.remark

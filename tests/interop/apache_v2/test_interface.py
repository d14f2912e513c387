"""The interface of RocketMQ's SDK for Python beside ours."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

from rocketpy_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from tests.interop.apache_v2.clients import PYTHON, Clients
from tests.interop.apache_v2.conftest import at
from tests.interop.apache_v2.servers import OURS

pytestmark = pytest.mark.xdist_group("apache_v2")
Place = tuple[str, int]


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[Place, object]]:
    """Yields the numbers of fields and values, with what they mean on the wire."""
    pending: list[tuple[str, DescriptorProto]] = [(each.name, each) for each in file.message_type]
    enums: list[tuple[str, EnumDescriptorProto]] = [(each.name, each) for each in file.enum_type]
    while pending:
        name, message = pending.pop()
        pending += [(f"{name}.{each.name}", each) for each in message.nested_type]
        enums += [(f"{name}.{each.name}", each) for each in message.enum_type]
        for field in message.field:
            oneof = ""
            if field.HasField("oneof_index"):
                oneof = message.oneof_decl[field.oneof_index].name
            kind = (field.name, field.type, field.type_name, field.label, oneof)
            yield (name, field.number), (*kind, field.proto3_optional)
    for name, enum in enums:
        for value in enum.value:
            yield (name, value.number), value.name
    for service in file.service:
        for method in service.method:
            yield (
                (f"{service.name}/{method.name}", 0),
                (
                    *(method.input_type, method.output_type),
                    *(method.client_streaming, method.server_streaming),
                ),
            )


@at([(PYTHON, OURS)])
def test_the_interface_of_the_sdk_is_part_of_ours(clients: Clients) -> None:
    encoded = clients.ask("descriptors")["files"]
    theirs = [FileDescriptorProto.FromString(base64.b64decode(each)) for each in encoded]
    ours = [
        FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb)
        for each in (definition_pb2, service_pb2)
    ]
    mine = {place: what for file in ours for place, what in messages_of(file)}
    found = {place: what for file in theirs for place, what in messages_of(file)}
    assert len(found) > 300
    assert {place: mine.get(place) for place in found} == found

"""A client of `apache.rocketmq.v2` by its stubs, with the headers of RocketMQ's SDKs."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from rocketpy_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from rocketpy_proto.record import Record, RecordBlock, decode_record
from tests.support.broker.running_broker import RunningBroker

# The time of a new clock of the tests.
BORN_MS = ManualClock().now_ms()
_NUMBERS = itertools.count(1)
ACCESS_POINT = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=18_081)])


def topic(name: str, namespace: str = "") -> v2.Resource:
    return v2.Resource(resource_namespace=namespace, name=name)


group = topic


def producing(*topics: str, namespace: str = "") -> v2.Settings:
    names = [topic(each, namespace) for each in topics]
    return v2.Settings(
        client_type=v2.PRODUCER,
        access_point=ACCESS_POINT,
        publishing=v2.Publishing(topics=names, validate_message_type=True),
        user_agent=v2.UA(language=v2.JAVA, version="5.0.7"),
    )


def consuming(
    name: str, *topics: str, expression: str = "*", client_type: v2.ClientType = v2.PUSH_CONSUMER
) -> v2.Settings:
    entries = [
        v2.SubscriptionEntry(
            topic=topic(each),
            expression=v2.FilterExpression(type=v2.TAG, expression=expression),
        )
        for each in topics
    ]
    return v2.Settings(
        client_type=client_type,
        subscription=v2.Subscription(group=group(name), subscriptions=entries),
    )


def message(name: str, body: bytes = b"body", **system: Any) -> v2.Message:
    """Returns a message with an id of its own; `system` are further system properties."""
    fields: dict[str, Any] = {
        "message_id": f"01{next(_NUMBERS):032X}",
        "born_host": "host",
        "body_encoding": v2.IDENTITY,
    }
    properties = v2.SystemProperties(**fields | system)
    properties.born_timestamp.FromMilliseconds(BORN_MS)
    return v2.Message(topic=topic(name), system_properties=properties, body=body)


async def records(running: RunningBroker, name: str, queue_id: int = 0) -> list[Record]:
    """Returns the records of a queue, read by `rocketpy.v1`."""
    found = list[Record]()
    for response in await running.pull(topic=name, queue_id=queue_id, offset=0):
        for at in RecordBlock.parse(response.records).positions if response.records else ():
            found.append(decode_record(response.records, int(at)).record)
    return found


@dataclass
class ApacheClient:
    """The calls of one client; an empty value leaves out its header."""

    running: RunningBroker
    client_id: str = "host@1@0@abc"
    language: str = "JAVA"
    namespace: str = ""

    @property
    def stub(self) -> Any:
        return service_pb2_grpc.MessagingServiceStub(self.running.channel)

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        headers = {
            "x-mq-client-id": self.client_id,
            "x-mq-language": self.language,
            "x-mq-client-version": "5.0.7",
            "x-mq-protocol": "v2",
            "x-mq-namespace": self.namespace,
        }
        return [(name, value) for name, value in headers.items() if value]

    async def call(self, method: str, request: Any) -> Any:
        return await getattr(self.stub, method)(request, metadata=self.metadata)

    async def items(self, method: str, request: Any) -> list[Any]:
        return [each async for each in getattr(self.stub, method)(request, metadata=self.metadata)]

    async def route(self, name: str, endpoints: v2.Endpoints = ACCESS_POINT) -> Any:
        request = service_pb2.QueryRouteRequest(topic=topic(name), endpoints=endpoints)
        return await self.call("QueryRoute", request)

    async def send(self, *messages: v2.Message) -> service_pb2.SendMessageResponse:
        request = service_pb2.SendMessageRequest(messages=messages)
        response: service_pb2.SendMessageResponse = await self.call("SendMessage", request)
        return response

    async def heartbeat(self, client_type: v2.ClientType, name: str = "") -> v2.Status:
        request = service_pb2.HeartbeatRequest(client_type=client_type)
        if name:
            request.group.name = name
        status: v2.Status = (await self.call("Heartbeat", request)).status
        return status

    async def terminate(self) -> v2.Status:
        request = service_pb2.NotifyClientTerminationRequest()
        status: v2.Status = (await self.call("NotifyClientTermination", request)).status
        return status

    @asynccontextmanager
    async def telemetry(self, settings: v2.Settings | None = None) -> AsyncIterator[Any]:
        """Yields a stream, after the answer to `settings` if there are any."""
        call = self.stub.Telemetry(metadata=self.metadata)
        if settings is not None:
            await call.write(TelemetryCommand(settings=settings))
            assert (await call.read()).status.code == v2.OK
        yield call
        call.cancel()

    async def settle(self, settings: v2.Settings) -> TelemetryCommand:
        """Returns the answer to settings."""
        async with self.telemetry() as call:
            await call.write(TelemetryCommand(settings=settings))
            answer: TelemetryCommand = await call.read()
            return answer


@pytest.fixture
def apache(running: RunningBroker) -> ApacheClient:
    """Returns a client of the running broker."""
    return ApacheClient(running)

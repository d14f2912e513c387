"""Consumers of `apache.rocketmq.v2` by its stubs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.support.broker.pops import GROUP, INVISIBLE_MS, TOPIC, pass_time
from tests.support.broker.running_broker import RunningBroker

# The shortest wait of a receive.
WAIT_MS = 5_000
# A deadline that no test reaches.
TIMEOUT_SECONDS = 120.0


def duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


@dataclass
class Received:
    """The responses of a receive."""

    status: v2.Status = field(default_factory=v2.Status)
    messages: list[v2.Message] = field(default_factory=list)
    delivered: Timestamp | None = None
    kinds: list[str | None] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    @property
    def handles(self) -> list[str]:
        return [each.system_properties.receipt_handle for each in self.messages]

    @property
    def attempts(self) -> list[int]:
        return [each.system_properties.delivery_attempt for each in self.messages]

    def take(self, response: Any) -> None:
        kind = response.WhichOneof("content")
        self.kinds.append(kind)
        if kind == "status":
            self.status = response.status
        elif kind == "message":
            self.messages.append(response.message)
        else:
            self.delivered = response.delivery_timestamp


@dataclass
class Consumer:
    """A client of a group that reads one topic."""

    running: RunningBroker
    group: str = GROUP
    topic: str = TOPIC
    client_id: str = "host@1@0@a"
    version: str = "5.1.2"

    @property
    def stub(self) -> service_pb2_grpc.MessagingServiceStub:
        return service_pb2_grpc.MessagingServiceStub(self.running.channel)

    @property
    def names(self) -> dict[str, Any]:
        return {"group": v2.Resource(name=self.group), "topic": v2.Resource(name=self.topic)}

    def call(self, method: str, request: Any, timeout: float = TIMEOUT_SECONDS) -> Any:
        headers = {"x-mq-language": "PYTHON", "x-mq-client-version": self.version}
        if self.client_id:
            headers["x-mq-client-id"] = self.client_id
        metadata = tuple(headers.items())
        return getattr(self.stub, method)(request, metadata=metadata, timeout=timeout)

    def queue(self, queue_id: int = -1) -> v2.MessageQueue:
        return v2.MessageQueue(topic=v2.Resource(name=self.topic), id=queue_id)

    def receive_request(self, **fields: Any) -> service_pb2.ReceiveMessageRequest:
        usual: dict[str, Any] = {
            "group": v2.Resource(name=self.group),
            "message_queue": self.queue(),
            "filter_expression": v2.FilterExpression(type=v2.TAG, expression="*"),
            "batch_size": 32,
            "long_polling_timeout": duration(WAIT_MS),
        }
        if not fields.get("auto_renew"):
            usual["invisible_duration"] = duration(INVISIBLE_MS)
        given = {name: value for name, value in (usual | fields).items() if value is not None}
        return service_pb2.ReceiveMessageRequest(**given)

    def receiving(
        self, timeout: float = TIMEOUT_SECONDS, **fields: Any
    ) -> grpc.aio.UnaryStreamCall[Any, Any]:
        """Returns the call of a receive."""
        call: grpc.aio.UnaryStreamCall[Any, Any] = self.call(
            "ReceiveMessage", self.receive_request(**fields), timeout
        )
        return call

    async def receive(self, timeout: float = TIMEOUT_SECONDS, **fields: Any) -> Received:
        """Returns the responses of a receive, which waits if there is no message."""
        received = Received()
        async for response in self.receiving(timeout, **fields):
            received.take(response)
        return received

    async def receive_soon(self, **fields: Any) -> Received:
        """Returns the first messages of repeated receives, within a minute of the clock."""
        received, waiting = Received(), self.running.broker.services.long_polling.calls
        for _ in range(60_000 // WAIT_MS):
            call = asyncio.ensure_future(self.receive(**fields))
            while not call.done() and not waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            if not call.done():
                await pass_time(self.running, WAIT_MS)
            received = await call
            if received.messages:
                break
        return received

    async def receive_nothing(self, **fields: Any) -> None:
        """Checks that a receive finds no message for WAIT_MS."""
        held = asyncio.ensure_future(self.receive(**fields))
        await self.running.held(1)
        await pass_time(self.running, WAIT_MS)
        received = await held
        assert (received.status.code, received.messages) == (v2.MESSAGE_NOT_FOUND, [])

    async def ack(self, *handles: str) -> service_pb2.AckMessageResponse:
        entries = [
            service_pb2.AckMessageEntry(message_id=f"id-{i}", receipt_handle=handle)
            for i, handle in enumerate(handles)
        ]
        request = service_pb2.AckMessageRequest(entries=entries, **self.names)
        response: service_pb2.AckMessageResponse = await self.call("AckMessage", request)
        return response

    async def acked(self, *handles: str) -> None:
        """Acknowledges messages."""
        response = await self.ack(*handles)
        assert response.status.code == v2.OK, response.status.message

    async def change(
        self, handle: str, invisible_ms: int
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        request = service_pb2.ChangeInvisibleDurationRequest(
            receipt_handle=handle, invisible_duration=duration(invisible_ms), **self.names
        )
        response: service_pb2.ChangeInvisibleDurationResponse = await self.call(
            "ChangeInvisibleDuration", request
        )
        return response

    async def forward(self, handle: str) -> int:
        """Returns the code of a forward to the dead letters."""
        request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=handle, **self.names
        )
        return int((await self.call("ForwardMessageToDeadLetterQueue", request)).status.code)

    async def heartbeat(self, client_type: v2.ClientType = v2.PUSH_CONSUMER) -> int:
        request = service_pb2.HeartbeatRequest(
            group=v2.Resource(name=self.group), client_type=client_type
        )
        return int((await self.call("Heartbeat", request)).status.code)

    async def terminate(self) -> int:
        request = service_pb2.NotifyClientTerminationRequest(group=v2.Resource(name=self.group))
        return int((await self.call("NotifyClientTermination", request)).status.code)


async def make_ordered(running: RunningBroker, group: str = GROUP, **fields: Any) -> None:
    """Creates a group that reads its queues in order."""
    config = SubscriptionGroupConfig(group, consume_message_orderly=True, **fields)
    await running.broker.services.groups.configs.update(config)

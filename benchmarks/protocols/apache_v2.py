"""The protocol of RocketMQ's SDKs, `apache.rocketmq.v2`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from benchmarks.protocols.content import (
    BULK_TOPIC,
    FULL_QUEUES,
    KIB,
    LARGE_TOPIC,
    PASSED_TOPIC,
    SMALL_TOPIC,
    WIDE_QUEUES,
    WIDE_TOPIC,
)
from benchmarks.protocols.grpc_v1 import OPTIONS
from benchmarks.protocols.interface import Bulk, Side, Work
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2, service_pb2_grpc

GROUP = v2.Resource(name="bench")
ANY_QUEUE = -1
HOLD_SECONDS, INVISIBLE_SECONDS = 20, 3_600
MESSAGES_MAX, RECEIVED_MAX = 128, 32
# Many large requests of one connection would be refused, so each writer has its own.
WRITERS, READERS, ASKERS, CONNECTIONS = 16, 8, 2, 8
INT32_MAX = (1 << 31) - 1
ACCESS_POINT = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=8_081)])
# An expression of nearly the most terms. It matches no message.
HOSTILE_FILTER = " OR ".join(["TAGS = 'none'"] * 60)
SUBSCRIPTIONS = 900
_NUMBERS = itertools.count(1)


class ApacheClient:
    """A channel with the headers of an SDK."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
        self._headers = (
            ("x-mq-client-id", f"bench@{next(_NUMBERS)}@{id(channel)}"),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.0.7"),
            ("x-mq-protocol", "v2"),
        )

    async def ask(self, method: str, request: Any) -> Any:
        """Returns the answer of a method that succeeds."""
        answer = await getattr(self.stub, method)(request, metadata=self._headers)
        assert answer.status.code == v2.OK, answer.status
        return answer

    async def bodies(self, method: str, request: Any) -> list[Any]:
        """Returns the messages of a stream."""
        found = []
        async for each in getattr(self.stub, method)(request, metadata=self._headers):
            kind = each.WhichOneof("content")
            if kind == "status":
                assert each.status.code in {v2.OK, v2.MESSAGE_NOT_FOUND}, each.status
            elif kind == "message":
                found.append(each.message)
        return found

    async def send(self, topic: str, queue_id: int, body: bytes) -> None:
        """Sends one message; the broker chooses the queue."""
        del queue_id
        await self.ask("SendMessage", _sent([_message(topic, body)]))

    async def pull(self) -> None:
        """Pulls the small message."""
        assert len(await self.bodies("PullMessage", _pull(SMALL_TOPIC, 1, 0, 1))) == 1

    async def echo(self) -> None:
        """Asks for the end of a queue."""
        queue = v2.MessageQueue(topic=v2.Resource(name=SMALL_TOPIC), id=1)
        request = service_pb2.QueryOffsetRequest(message_queue=queue, query_offset_policy=v2.END)
        await self.ask("QueryOffset", request)

    async def hold(self, topic: str, queue_id: int, offset: int) -> list[bytes]:
        """Receives from all queues of a topic."""
        del queue_id, offset
        return [each.body for each in await self.bodies("ReceiveMessage", _receive(topic))]

    async def settle(self, settings: v2.Settings) -> None:
        """Sends settings on a telemetry stream and waits for the answer."""
        call = self.stub.Telemetry(metadata=self._headers)
        await call.write(service_pb2.TelemetryCommand(settings=settings))
        answer = await call.read()
        assert answer.status.code == v2.OK, answer.status
        call.cancel()


@asynccontextmanager
async def connect(endpoint: str) -> AsyncIterator[ApacheClient]:
    """Yields a client with a connection of its own."""
    async with grpc.aio.insecure_channel(endpoint, OPTIONS) as channel:
        yield ApacheClient(channel)


def _message(topic: str, body: bytes) -> v2.Message:
    system = v2.SystemProperties(
        message_id=f"01{next(_NUMBERS):032X}", born_host="host", body_encoding=v2.IDENTITY
    )
    system.born_timestamp.GetCurrentTime()
    return v2.Message(topic=v2.Resource(name=topic), system_properties=system, body=body)


def _sent(messages: list[v2.Message]) -> service_pb2.SendMessageRequest:
    return service_pb2.SendMessageRequest(messages=messages)


def _pull(
    topic: str, queue_id: int, offset: int, count: int, sql92: str = ""
) -> service_pb2.PullMessageRequest:
    kind, expression = (v2.SQL, sql92) if sql92 else (v2.TAG, "*")
    return service_pb2.PullMessageRequest(
        group=GROUP,
        message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=queue_id),
        offset=offset,
        batch_size=count,
        filter_expression=v2.FilterExpression(type=kind, expression=expression),
    )


def _receive(topic: str, count: int = RECEIVED_MAX) -> service_pb2.ReceiveMessageRequest:
    request = service_pb2.ReceiveMessageRequest(
        group=GROUP,
        message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=ANY_QUEUE),
        filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        batch_size=count,
    )
    request.invisible_duration.FromSeconds(INVISIBLE_SECONDS)
    request.long_polling_timeout.FromSeconds(HOLD_SECONDS)
    return request


def writer(body_bytes: int) -> Work:
    """Returns work that sends a request of the most messages, and then the next."""
    request = _sent([_message(BULK_TOPIC, bytes(body_bytes)) for _ in range(MESSAGES_MAX)])

    async def work(client: ApacheClient, _number: int, done: Callable[[], None]) -> None:
        while True:
            await client.ask("SendMessage", request)
            done()

    return work


async def reader(client: ApacheClient, number: int, done: Callable[[], None]) -> None:
    """Pulls a queue of large messages from the start repeatedly."""
    while True:
        assert await client.bodies(
            "PullMessage", _pull(LARGE_TOPIC, number % FULL_QUEUES, 0, RECEIVED_MAX)
        )
        done()


async def consumer(client: ApacheClient, _number: int, done: Callable[[], None]) -> None:
    """Sends large messages, receives and acknowledges them."""
    sent = _sent([_message(PASSED_TOPIC, bytes(64 * KIB)) for _ in range(RECEIVED_MAX)])
    # A group begins at the end of a topic with its first receive.
    receive = _receive(PASSED_TOPIC, INT32_MAX)
    receive.group.name = "passed"
    receive.long_polling_timeout.FromSeconds(5)
    while True:
        await client.ask("SendMessage", sent)
        found = await client.bodies("ReceiveMessage", receive)
        entries = [
            service_pb2.AckMessageEntry(
                message_id=each.system_properties.message_id,
                receipt_handle=each.system_properties.receipt_handle,
            )
            for each in found
        ]
        if entries:
            await client.ask(
                "AckMessage",
                service_pb2.AckMessageRequest(
                    group=receive.group, topic=v2.Resource(name=PASSED_TOPIC), entries=entries
                ),
            )
        done()


async def searcher(client: ApacheClient, number: int, done: Callable[[], None]) -> None:
    """Pulls with an expression that no message matches."""
    request = _pull(BULK_TOPIC, number % FULL_QUEUES, 0, INT32_MAX, HOSTILE_FILTER)
    while True:
        await client.bodies("PullMessage", request)
        done()


async def route_asker(client: ApacheClient, _number: int, done: Callable[[], None]) -> None:
    """Asks for the route of a topic with many queues."""
    request = service_pb2.QueryRouteRequest(
        topic=v2.Resource(name=WIDE_TOPIC), endpoints=ACCESS_POINT
    )
    while True:
        await client.ask("QueryRoute", request)
        done()


async def settler(client: ApacheClient, number: int, done: Callable[[], None]) -> None:
    """Sends settings with many subscriptions, other ones each time."""
    turn = 0
    while True:
        turn += 1
        entries = [
            v2.SubscriptionEntry(
                topic=v2.Resource(name=f"listed-{topic:05}"),
                expression=v2.FilterExpression(type=v2.TAG, expression=f"tag-{turn}"),
            )
            for topic in range(SUBSCRIPTIONS)
        ]
        settings = v2.Settings(
            client_type=v2.PUSH_CONSUMER,
            access_point=ACCESS_POINT,
            subscription=v2.Subscription(
                group=v2.Resource(name=f"settled-{number}"), subscriptions=entries
            ),
        )
        await client.settle(settings)
        done()


BULK = {
    "writers-60k": Bulk(lambda: [writer(60 * KIB)] * WRITERS, WRITERS),
    "writers-100": Bulk(lambda: [writer(100)] * WRITERS, WRITERS),
    "readers": Bulk(lambda: [reader] * READERS, CONNECTIONS),
    "consumers": Bulk(lambda: [consumer] * READERS, CONNECTIONS),
    "searchers": Bulk(lambda: [searcher] * ASKERS, CONNECTIONS),
    "routes": Bulk(lambda: [route_asker] * ASKERS, CONNECTIONS),
    "settings": Bulk(lambda: [settler] * ASKERS, CONNECTIONS),
}
PHASES = {
    "16 writers of 8 MiB": ["writers-60k"],
    "16 writers of 128 small messages": ["writers-100"],
    "8 readers of large messages": ["readers"],
    "8 consumers of large messages": ["consumers"],
    "searches by expression": ["searchers"],
    f"routes of {WIDE_QUEUES:,} queues and settings": ["routes", "settings"],
    "all of these": list(BULK),
}
SIDE = Side(connect, BULK, PHASES, held_queues=8, is_held_by_topic=True)

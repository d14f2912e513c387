"""RocketMQ's remoting protocol, as classic clients and tools speak it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.protocols.content import (
    BULK_TOPIC,
    FULL_QUEUES,
    KIB,
    LARGE_TOPIC,
    LISTED_TOPICS,
    MIB,
    SMALL_TOPIC,
    WIDE_QUEUES,
    WIDE_TOPIC,
)
from benchmarks.protocols.interface import Bulk, Side, Work
from rocketpy_broker import LocalBroker
from rocketpy_proto.record import RecordBlock, decode_record
from rocketpy_proto.remoting import (
    EXCHANGES,
    BatchMessage,
    FrameDecoder,
    Header,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    encode_batch,
    encode_body,
    encode_frame,
)
from rocketpy_proto.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.pulls import (
    SUBSCRIPTION,
    SUSPEND,
    PullMessageRequest,
    QueryMessageRequest,
)
from rocketpy_proto.remoting.headers.sends import SendMessageRequest
from rocketpy_proto.remoting.headers.topics import TopicRequest

GROUP = "bench"
HOLD_MS = 60_000
READ_BYTES = 1 << 20
WRITERS, READERS, ASKERS = 64, 8, 2
# Requests of one connection that are sent before the first answer.
PIPELINED = 8
GROUPS, SUBSCRIPTIONS = 4, 500


class RemotingClient(asyncio.Protocol):
    """A connection with any number of requests at a time."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._asked: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hands answers to their requests; requests of the broker are ignored."""
        for command in self._decoder.feed(data):
            answer = self._asked.pop(command.opaque, None) if command.is_response else None
            if answer is not None and not answer.done():
                answer.set_result(command)

    def connection_lost(self, error: Exception | None) -> None:
        """Fails all requests."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error or ConnectionError("the broker closed the connection"))

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    async def ask(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Returns the answer to a request, with any code."""
        self._opaque += 1
        answer = asyncio.get_running_loop().create_future()
        self._asked[self._opaque] = answer
        fields = {} if header is None else EXCHANGES[code].request.encode(header)
        command = RemotingCommand(code, self._opaque, ext_fields=fields, body=body)
        self._transport.writelines(encode_frame(command))
        found: RemotingCommand = await answer
        return found

    async def ok(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Returns the answer to a request that succeeds."""
        answer = await self.ask(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def send(self, topic: str, queue_id: int, body: bytes) -> None:
        """Sends one message."""
        await self.ok(RequestCode.SEND_MESSAGE_V2, _send_header(topic, queue_id), body)

    async def pull(self) -> None:
        """Pulls the small message."""
        assert (await self.ok(RequestCode.PULL_MESSAGE, _pull_header(SMALL_TOPIC, 1, 0, 1))).body

    async def echo(self) -> None:
        """Asks for the end of a queue."""
        await self.ok(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(SMALL_TOPIC, 1))

    async def hold(self, topic: str, queue_id: int, offset: int) -> list[bytes]:
        """Pulls from a queue's end."""
        header = _pull_header(topic, queue_id, offset, 32, flags=SUSPEND, hold_ms=HOLD_MS)
        answer = await self.ask(RequestCode.PULL_MESSAGE, header)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        records = bytes(answer.body)
        positions = RecordBlock.parse(records).positions
        return [bytes(decode_record(records, int(at)).record.body) for at in positions]


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[RemotingClient]:
    """Yields a client with a connection of its own."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(RemotingClient, host, int(port))
    try:
        yield client
    finally:
        client.close()


def _send_header(topic: str, queue_id: int, *, is_batch: bool = False) -> SendMessageRequest:
    return SendMessageRequest(GROUP, topic, queue_id, 0, is_batch=is_batch)


def _pull_header(
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    *,
    flags: int = 0,
    hold_ms: int = 0,
    bytes_max: int | None = None,
) -> PullMessageRequest:
    return PullMessageRequest(
        consumer_group=GROUP,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=flags | SUBSCRIPTION,
        suspend_timeout_ms=hold_ms,
        subscription="*",
        max_msg_bytes=bytes_max,
    )


def writer(body_bytes: int) -> Work:
    """Returns work that sends a batch of about 4 MiB, waits for the answer, and sends the next."""
    count = (4 * MIB - 64 * KIB) // (body_bytes + 64)
    properties = b"KEYS\x01order\x02"
    batch = encode_batch([BatchMessage(bytes(body_bytes), properties)] * count)

    async def work(client: RemotingClient, number: int, done: Callable[[], None]) -> None:
        header = _send_header(BULK_TOPIC, number % FULL_QUEUES, is_batch=True)
        while True:
            await client.ok(RequestCode.SEND_BATCH_MESSAGE, header, batch)
            done()

    return work


async def reader(client: RemotingClient, number: int, done: Callable[[], None]) -> None:
    """Pulls a queue from start to end repeatedly: of large messages, or of many small ones."""
    topic, count = (LARGE_TOPIC, 32) if number % 2 else (BULK_TOPIC, 1 << 20)
    offset = 0
    while True:
        header = _pull_header(topic, number % FULL_QUEUES, offset, count, bytes_max=4 * MIB)
        answer = await client.ask(RequestCode.PULL_MESSAGE, header)
        assert answer.code in {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND}, answer.remark
        is_found = answer.code == ResponseCode.SUCCESS
        offset = int(answer.ext_fields["nextBeginOffset"]) if is_found else 0
        done()


def asker(code: RequestCode, header: Header | None = None) -> Work:
    """Returns work that sends a request many times at once, and again after each answer."""

    async def repeat(client: RemotingClient, done: Callable[[], None]) -> None:
        while True:
            answer = await client.ask(code, header)
            is_refused = answer.code == ResponseCode.SYSTEM_BUSY
            assert is_refused or answer.code == ResponseCode.SUCCESS, answer.remark
            done()

    async def work(client: RemotingClient, _number: int, done: Callable[[], None]) -> None:
        await asyncio.gather(*(repeat(client, done) for _ in range(PIPELINED)))

    return work


async def heart(client: RemotingClient, number: int, done: Callable[[], None]) -> None:
    """Sends heartbeats with other subscriptions each time, of one client."""
    turn = 0
    while True:
        turn += 1
        groups = tuple(
            ConsumerData(
                f"group-{number}-{group}",
                subscriptions=tuple(
                    SubscriptionData(f"listed-{topic:05}", f"tag-{turn}", sub_version_ms=turn)
                    for topic in range(SUBSCRIPTIONS)
                ),
            )
            for group in range(GROUPS)
        )
        body = encode_body(HeartbeatData(f"client-{number}", consumers=groups))
        await client.ok(RequestCode.HEART_BEAT, body=body)
        done()


def own_port(broker: LocalBroker) -> str:
    """Returns the broker's address for remoting."""
    return broker.remoting_endpoint


def name_server(broker: LocalBroker) -> str:
    """Returns the address of the broker's name server."""
    return broker.name_server


def _askers(code: RequestCode, header: Header | None = None) -> Callable[[], list[Work]]:
    return lambda: [asker(code, header)] * ASKERS


_KEYS = QueryMessageRequest(BULK_TOPIC, "order-1", 64, 0, 1 << 60)
_NAMES = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
BULK = {
    "writers-16k": Bulk(lambda: [writer(16 * KIB)] * WRITERS, WRITERS),
    "writers-100": Bulk(lambda: [writer(100)] * READERS, READERS),
    "readers": Bulk(lambda: [reader] * READERS, READERS),
    "stats": Bulk(_askers(RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(WIDE_TOPIC)), ASKERS),
    "topics": Bulk(_askers(RequestCode.GET_ALL_TOPIC_CONFIG), ASKERS),
    "names": Bulk(_askers(_NAMES), ASKERS, name_server),
    "keys": Bulk(_askers(RequestCode.QUERY_MESSAGE, _KEYS), ASKERS),
    "hearts": Bulk(lambda: [heart] * ASKERS, ASKERS),
}
PHASES = {
    "64 writers of 4 MiB": ["writers-16k"],
    "8 writers of 4 MiB of small messages": ["writers-100"],
    "8 readers of everything": ["readers"],
    f"figures of {WIDE_QUEUES:,} queues": ["stats"],
    f"lists of {LISTED_TOPICS:,} topics": ["topics", "names"],
    "key queries and heartbeats": ["keys", "hearts"],
    "all of these": ["writers-16k", "writers-100", "readers", "stats", "topics", "keys", "hearts"],
}
SIDE = Side(connect, BULK, PHASES, held_queues=100, address=own_port)

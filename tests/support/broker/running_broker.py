"""A broker inside the test's event loop, with real gRPC and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from rocketpy_broker.broker import Broker, Ready
from rocketpy_broker.config import BrokerConfig, Limits
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.guarded_clock import GuardedClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    groups_pb2_grpc,
)
from tests.support.blocks import WireBlock, wire_block

T = TypeVar("T")


@dataclass
class RunningBroker:
    """A broker, its clock, and stubs for its services."""

    broker: Broker
    clock: ManualClock
    ready: Ready
    channel: grpc.aio.Channel

    @property
    def data(self) -> broker_pb2_grpc.BrokerStub:
        return broker_pb2_grpc.BrokerStub(self.channel)

    @property
    def admin(self) -> admin_pb2_grpc.AdminStub:
        return admin_pb2_grpc.AdminStub(self.channel)

    @property
    def groups(self) -> groups_pb2_grpc.GroupsStub:
        return groups_pb2_grpc.GroupsStub(self.channel)

    async def create_topic(self, topic: str, queues: int = 4) -> int:
        config = admin_pb2.TopicConfig(
            topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        request = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
        response: admin_pb2.UpdateTopicResponse = await self.admin.UpdateTopic(request)
        return response.status.code

    async def append(self, topic: str, queue_id: int, *bodies: bytes) -> broker_pb2.AppendResponse:
        return await self.append_block(topic, queue_id, wire_block(topic, bodies))

    async def append_block(
        self, topic: str, queue_id: int, block: WireBlock
    ) -> broker_pb2.AppendResponse:
        request = broker_pb2.AppendRequest(
            topic=topic,
            queue_id=queue_id,
            records=block.records,
            record_sizes=block.record_sizes,
        )
        call = self.data.Append(iter([request]))
        response: broker_pb2.AppendResponse = await call.read()
        return response

    async def held(self, count: int) -> None:
        """Waits until the broker holds `count` calls."""
        while len(self.broker.services.long_polling.calls) != count:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def pull(self, **fields: Any) -> list[broker_pb2.PullResponse]:
        return [response async for response in self.data.Pull(broker_pb2.PullRequest(**fields))]


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until `is_so`, while the loop and the threads run."""
    while not is_so():  # noqa: ASYNC110 (files have no event)
        await asyncio.sleep(0.001)


# Sizes of files for 100,000 small messages in one file of a queue.
LONG_QUEUE = {"commit_log_segment_bytes": 32 << 20, "consume_queue_file_bytes": 20 * 100_000}
# Options of a window that never grows: unread messages stay at the broker.
NARROW = [("grpc.http2.lookahead_bytes", 65_535), ("grpc.http2.bdp_probe", 0)]


@asynccontextmanager
async def another_connection(
    running: RunningBroker, options: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[RunningBroker]:
    """Yields the same broker, with a connection of its own."""
    own = [("grpc.use_local_subchannel_pool", 1), *options]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.ready.port}", options=own) as channel:
        yield replace(running, channel=channel)


@asynccontextmanager
async def serving(
    serve_until: Callable[[asyncio.Event, asyncio.Future[T]], Coroutine[Any, Any, None]],
) -> AsyncIterator[T]:
    """Yields what a server says when it is ready; stops the server after the block."""
    stopped = asyncio.Event()
    ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(serve_until(stopped, ready))
    either: list[asyncio.Future[Any]] = [work, ready]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
    try:
        yield ready.result()
    finally:
        stopped.set()
        await work


StartBroker = Callable[..., AbstractAsyncContextManager[RunningBroker]]


@dataclass(frozen=True)
class BrokerStarter:
    """A function that starts brokers in one directory, with more configuration.

    `folder` is a part of that directory, for a test of several stores. A broker that `is_believing`
    treats its clock as brokers treat the machine's. Each broker serves within the blocks of all
    `clients`.
    """

    path: Path
    clients: list[Callable[[RunningBroker], AbstractAsyncContextManager[None]]] = field(
        default_factory=list
    )

    @asynccontextmanager
    async def __call__(
        self,
        flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
        limits: Limits | None = None,
        clock: ManualClock | None = None,
        *,
        is_believing: bool = False,
        folder: str = ".",
        **configuration: Any,
    ) -> AsyncIterator[RunningBroker]:
        clock = clock or ManualClock()
        small: dict[str, Any] = {
            "commit_log_segment_bytes": 1 << 20,
            "consume_queue_file_bytes": 20_000,
            "stop_grace_ms": 500,
        }
        config = BrokerConfig(
            self.path / folder,
            port=0,
            flush_disk_type=flush,
            limits=limits or Limits(),
            **small | configuration,
        )
        broker = Broker(config, GuardedClock(clock) if is_believing else clock)
        async with (
            serving(broker.serve_until) as ready,
            grpc.aio.insecure_channel(f"127.0.0.1:{ready.port}") as channel,
            AsyncExitStack() as stack,
        ):
            running = RunningBroker(broker, clock, ready, channel)
            for client in self.clients:
                await stack.enter_async_context(client(running))
            yield running


@pytest.fixture
def start_broker(tmp_path: Path) -> BrokerStarter:
    return BrokerStarter(tmp_path)


@pytest.fixture
async def running(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a running broker; a test that starts it again uses `start_broker`."""
    async with start_broker() as started:
        yield started

"""Our broker beside Apache's proxy, both served by RocketMQ's SDK for Python.

The SDK is 5.1.2, the proxy 5.5.0 in its LOCAL mode with its broker. Both run on this machine, and
are measured in turns: sends, the time to a push listener, held receives, and receives with
acknowledgements of many messages. Our broker with users shows the cost of signatures. Skipped if
`make interop` has not fetched the SDK and the proxy.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

from benchmarks.harness import Result, compare
from benchmarks.rocketmq.java_client import Sends
from benchmarks.rocketmq.real_cluster import BROKER, QUEUES
from benchmarks.rocketmq.sdk_client import PYTHON, SdkClient, sdk_client
from rocketpy_broker import BrokerUser, LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from tests.interop.apache_v2.servers import PROXY, ApacheServer

SENT, CONSUMED, LISTENED, HELD = TOPICS = ("sent", "consumed", "listened", "held")
# The group of each test.
GROUP = "group"
SENDS = [Sends(2_000, 100, 1), Sends(10_000, 100, 32)]
SEND_MIN, SIGNED_MIN = 0.6, 0.9
PACED, PACE_US = 1_000, 10_000
HELD_RECEIVES, CONNECTIONS = 1_000, 10
# Receives are held for 20 seconds; the calls arrive meanwhile.
HELD_SECONDS, ARRIVAL_SECONDS, HOLD_SECONDS = 10.0, 5.0, 20
HELD_SHARE_MAX = 0.05
CONSUMED_COUNT, THREADS = 100_000, 8
CONSUME_MIN = 1.0
KEYS = ("bench", "a-secret-of-the-bench")
HEADERS = (("x-mq-client-id", "held@1@1@1"), ("x-mq-language", "PYTHON"))


@dataclass(frozen=True)
class Server:
    """A server, and its client."""

    endpoint: str
    client: SdkClient
    process: psutil.Process

    @property
    def cpu_seconds(self) -> float:
        """The processor time of its process."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def our_server(folder: Path, *, has_users: bool = False) -> Iterator[Server]:
    """Yields a broker of ours, with a user for the client or without users."""
    users = [BrokerUser(*KEYS, role="admin")] if has_users else []
    flush = FlushDiskType.ASYNC_FLUSH
    keys = KEYS if has_users else ("", "")
    with LocalBroker(folder / "store", users=users, flush=flush) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, queues=QUEUES)
        with sdk_client(broker.endpoint, folder / "client", *keys) as client:
            yield Server(broker.endpoint, client, psutil.Process(broker.pid))


@contextmanager
def apache_server(folder: Path) -> Iterator[Server]:
    """Yields Apache's proxy with its broker. Its JVM compiles fully."""
    jvm_options = ("-XX:TieredStopAtLevel=4", *BROKER.jvm_options)
    proxy = ApacheServer(folder / "server", BROKER.conf, jvm_options)
    try:
        proxy.serve()
        for topic in TOPICS:
            proxy.create_topic(topic, QUEUES)
        proxy.create_group(GROUP)
        with sdk_client(proxy.endpoint, folder / "client") as client:
            yield Server(proxy.endpoint, client, psutil.Process(proxy.pid))
    finally:
        proxy.kill()


def compare_sends(ours: Server, other: Server, sends: Sends, name: str, goal: float) -> Result:
    """Returns our speed against the other server's."""
    before = ours.cpu_seconds, other.cpu_seconds
    done = compare(lambda: ours.client.send(SENT, sends), lambda: other.client.send(SENT, sends))
    # One more round of each is not measured.
    count = sends.count * (len(done.ours) + 1)
    cpu = [
        (server.cpu_seconds - seconds) / count * 1e6
        for server, seconds in zip((ours, other), before, strict=True)
    ]
    detail = (
        f"{sends.count / done.seconds:,.0f} msgs/s at {cpu[0]:.0f} us of processor, other "
        f"{sends.count / done.baseline_seconds:,.0f} at {cpu[1]:.0f}"
    )
    name = f"SDK for Python: {name}, {sends.in_flight} in flight"
    return Result(name, done.ratio, "ratio", goal, detail=detail)


def listen(ours: Server, apache: Server) -> Iterator[Result]:
    """Yields the time from a send to a push listener, at an even pace; the goal is the proxy's."""
    theirs = apache.client.listen(LISTENED, GROUP, PACED, PACE_US)
    mine = ours.client.listen(LISTENED, GROUP, PACED, PACE_US)
    for percent in (50, 99):
        at = PACED * percent // 100
        yield Result(
            f"SDK for Python: send to push listener, {1_000_000 // PACE_US} messages/s, p{percent}",
            mine[at] / 1_000,
            "ms",
            theirs[at] / 1_000,
            at_most=True,
        )


def consume(ours: Server, apache: Server) -> Result:
    """Returns our speed of receives with acknowledgements; none is lost or comes twice."""
    seconds, cpu = [], []
    for server in (apache, ours):
        server.client.send(CONSUMED, Sends(CONSUMED_COUNT, 100, 32))
        before = server.cpu_seconds
        found, took = server.client.consume(CONSUMED, GROUP, CONSUMED_COUNT, THREADS)
        assert found == (CONSUMED_COUNT, CONSUMED_COUNT), found
        seconds.append(took)
        cpu.append((server.cpu_seconds - before) / CONSUMED_COUNT * 1e6)
    detail = (
        f"{CONSUMED_COUNT / seconds[1]:,.0f} msgs/s at {cpu[1]:.0f} us of processor, Apache's "
        f"proxy {CONSUMED_COUNT / seconds[0]:,.0f} at {cpu[0]:.0f}"
    )
    name = f"SDK for Python: {CONSUMED_COUNT:,} messages received and acknowledged once"
    return Result(name, seconds[0] / seconds[1], "ratio", CONSUME_MIN, detail=detail)


def held_receives(ours: Server, apache: Server) -> Result:
    """Returns the share of a processor that held receives take."""
    theirs, mine = asyncio.run(_held_share(apache)), asyncio.run(_held_share(ours))
    return Result(
        f"{HELD_RECEIVES:,} held receives, share of a processor",
        mine,
        "",
        HELD_SHARE_MAX,
        at_most=True,
        detail=f"Apache's proxy {theirs:.3f}",
    )


async def _held_share(server: Server) -> float:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with AsyncExitStack() as stack:
        stubs = []
        for _ in range(CONNECTIONS):
            channel = grpc.aio.insecure_channel(server.endpoint, options=options)
            await stack.enter_async_context(channel)
            stubs.append(service_pb2_grpc.MessagingServiceStub(channel))
        # The proxy serves only clients whose settings it has.
        telemetry = stubs[0].Telemetry(metadata=HEADERS)
        await telemetry.write(service_pb2.TelemetryCommand(settings=_settings()))
        await telemetry.read()
        calls = [
            stubs[number % CONNECTIONS].ReceiveMessage(_receive(), metadata=HEADERS)
            for number in range(HELD_RECEIVES)
        ]
        await asyncio.sleep(ARRIVAL_SECONDS)
        before = server.cpu_seconds
        await asyncio.sleep(HELD_SECONDS)
        share = (server.cpu_seconds - before) / HELD_SECONDS
        assert not any(call.done() for call in calls), "a receive was not held"
        for call in calls:
            call.cancel()
        telemetry.cancel()
    return share


def _settings() -> v2.Settings:
    entry = v2.SubscriptionEntry(
        topic=v2.Resource(name=HELD),
        expression=v2.FilterExpression(type=v2.TAG, expression="*"),
    )
    settings = v2.Settings(
        client_type=v2.SIMPLE_CONSUMER,
        subscription=v2.Subscription(group=v2.Resource(name=GROUP), subscriptions=[entry]),
    )
    settings.subscription.long_polling_timeout.FromSeconds(HOLD_SECONDS)
    return settings


def _receive() -> service_pb2.ReceiveMessageRequest:
    request = service_pb2.ReceiveMessageRequest(
        group=v2.Resource(name=GROUP),
        message_queue=v2.MessageQueue(topic=v2.Resource(name=HELD), id=-1),
        filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        batch_size=32,
    )
    request.invisible_duration.FromSeconds(60)
    request.long_polling_timeout.FromSeconds(HOLD_SECONDS)
    return request


def run() -> Iterator[Result]:
    """Yields the results of both servers, and of our broker with users."""
    if not (PYTHON.exists() and PROXY.exists()):
        print("apache_v2 is left out: the SDK or the proxy is not here; make interop fetches them")
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder_name:
        folder = Path(folder_name)
        for part in ("ours", "signed", "apache"):
            (folder / part).mkdir()
        with our_server(folder / "ours") as ours:
            with apache_server(folder / "apache") as apache:
                for sends in SENDS:
                    name = "sends / at Apache's proxy"
                    yield compare_sends(ours, apache, sends, name, SEND_MIN)
                yield from listen(ours, apache)
                yield held_receives(ours, apache)
                yield consume(ours, apache)
            with our_server(folder / "signed", has_users=True) as signed:
                yield compare_sends(signed, ours, SENDS[-1], "signed sends / unsigned", SIGNED_MIN)

"""Our broker beside a Java broker, both served by RocketMQ's own Java client.

Client and broker are RocketMQ 5.3.3. Both brokers run on this machine, and are measured in turns:
single sends, batches, pulls, and the time to a push listener; then the time to the first message,
and memory. Skipped if `make interop` has not fetched RocketMQ.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.harness import Result, compare
from benchmarks.rocketmq.java_client import JavaClient, Sends, is_compiled, java_client
from benchmarks.rocketmq.real_cluster import BROKER, QUEUES
from benchmarks.spark.bench_memory import anonymous_mib
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from tests.interop.cluster.cluster import A, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, send
from tests.interop.rocketmq import V5_3

SENT, PULLED, LISTENED = "sent", "pulled", "listened"
SINGLE = {
    FlushDiskType.ASYNC_FLUSH: [Sends(60_000, 100, 16), Sends(80_000, 100, 64)],
    FlushDiskType.SYNC_FLUSH: [Sends(20_000, 100, 16), Sends(40_000, 100, 64)],
}
BATCHES = [Sends(1_000_000, 100, 4, 1_000), Sends(200_000, 1024, 4, 500)]
SINGLE_MIN, BATCH_MIN, PULL_MIN = 1.0, 1.2, 1.0
FILL = Sends(400_000, 100, 4, 1_000)
PACED, PACE_US = 2_500, 2_000
LISTEN_P50_MS_MAX, LISTEN_P99_MS_MAX = 3.0, 15.0
MEMORY_MIB_MAX, FIRST_SECONDS_MAX = 200.0, 2.0


@dataclass(frozen=True)
class Server:
    """A broker, its client, and the seconds from its start to its first message."""

    client: JavaClient
    process: psutil.Process
    address: str
    first_seconds: float

    @property
    def resident_mib(self) -> float:
        """Resident memory of its process, with the pages of mapped files."""
        return self.process.memory_info().rss / (1 << 20)

    @property
    def own_mib(self) -> float:
        """Resident memory without mapped files: the kernel takes their pages back when it must."""
        return anonymous_mib(self.process.pid)


@contextmanager
def our_server(flush: FlushDiskType, folder: Path, version: str = V5_3) -> Iterator[Server]:
    """Yields a broker of ours with its own name server."""
    begin = time.perf_counter()
    with LocalBroker(folder / "store", flush=flush, commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic(SENT, queues=QUEUES)
        seconds = first_message(broker.remoting_endpoint, begin)
        for topic in (PULLED, LISTENED):
            broker.create_topic(topic, queues=QUEUES)
        process = psutil.Process(broker.pid)
        with java_client(version, broker.name_server, folder / "client") as client:
            yield Server(client, process, broker.remoting_endpoint, seconds)


@contextmanager
def java_server(flush: FlushDiskType, folder: Path, version: str = V5_3) -> Iterator[Server]:
    """Yields a Java broker with a Java name server."""
    spec = replace(BROKER, version=version, conf={**BROKER.conf, "flushDiskType": flush.value})
    cluster = Cluster(folder / "cluster", [spec], name_servers=1)
    begin = time.perf_counter()
    try:
        cluster.start()
        cluster.create_topic(SENT, QUEUES)
        address = cluster.broker(A).address
        seconds = first_message(address, begin)
        cluster.create_topic(PULLED, QUEUES)
        cluster.create_topic(LISTENED, QUEUES)
        with java_client(version, cluster.addresses, folder / "client") as client:
            yield Server(client, psutil.Process(cluster.broker(A).pid), address, seconds)
    finally:
        cluster.kill()


def first_message(address: str, begin: float) -> float:
    """Sends a message; returns the seconds from `begin` to its acknowledgement."""
    with Connection(address) as connection:
        send(connection, Queue(SENT), Outgoing(b"first")).ok()
    return time.perf_counter() - begin


def compare_sends(ours: Server, java: Server, sends: Sends, name: str, goal: float) -> Result:
    """Returns our speed against the Java broker's."""
    comparison = compare(
        lambda: ours.client.send(SENT, sends), lambda: java.client.send(SENT, sends)
    )
    detail = (
        f"{sends.count / comparison.seconds:,.0f} msgs/s, "
        f"Java {sends.count / comparison.baseline_seconds:,.0f}"
    )
    return Result(f"remoting: {name}", comparison.ratio, "ratio", goal, detail=detail)


def compare_pulls(ours: Server, java: Server) -> Result:
    """Returns the speed of the Java pull client at our broker against that at the Java broker."""
    for server in (ours, java):
        server.client.send(PULLED, FILL)
    comparison = compare(lambda: pull(ours), lambda: pull(java))
    detail = (
        f"{FILL.count / comparison.seconds / 1e6:.2f} M msgs/s, "
        f"Java {FILL.count / comparison.baseline_seconds / 1e6:.2f}"
    )
    return Result("remoting: Java pull client", comparison.ratio, "ratio", PULL_MIN, detail=detail)


def pull(server: Server) -> None:
    """Reads a topic with one thread for each queue."""
    assert server.client.pull(PULLED) == (FILL.count, FILL.count * FILL.body_bytes)


def listen(ours: Server, java: Server) -> Iterator[Result]:
    """Yields the time from a send to a push listener, at an even pace."""
    took: dict[str, list[int]] = {}
    for server in (java, ours, java, ours):
        group = f"listener-{len(took)}"
        took[server.address] = server.client.listen(LISTENED, group, PACED, PACE_US)
    mine, theirs = took[ours.address], took[java.address]
    for percent, goal in ((50, LISTEN_P50_MS_MAX), (99, LISTEN_P99_MS_MAX)):
        at = PACED * percent // 100
        yield Result(
            f"remoting: send to push listener, {1_000_000 // PACE_US} messages/s, p{percent}",
            mine[at] / 1000,
            "ms",
            goal,
            at_most=True,
            detail=f"Java {theirs[at] / 1000:.1f}",
        )


def totals(ours: Server, java: Server) -> Iterator[Result]:
    """Yields the time to the first message, and the memory after all sends and pulls."""
    seconds = f"Java {java.first_seconds:.1f}"
    mib = (
        f"{ours.resident_mib:.0f} with mapped files, "
        f"Java {java.own_mib:.0f} and {java.resident_mib:.0f}"
    )
    first = "remoting: first message after the start"
    yield Result(first, ours.first_seconds, "s", FIRST_SECONDS_MAX, at_most=True, detail=seconds)
    memory = "remoting: broker's memory without mapped files"
    yield Result(memory, ours.own_mib, "MiB", MEMORY_MIB_MAX, at_most=True, detail=mib)


def run() -> Iterator[Result]:
    """Yields the results with each kind of flush."""
    if not is_compiled(V5_3):
        print("java_broker is left out: RocketMQ's jars are not here; make interop fetches them")
        return
    for flush, singles in SINGLE.items():
        with tempfile.TemporaryDirectory(prefix="bench-") as folder_name:
            folder = Path(folder_name)
            for part in ("ours", "java"):
                (folder / part).mkdir()
            with (
                our_server(flush, folder / "ours") as ours,
                java_server(flush, folder / "java") as java,
            ):
                for sends in singles:
                    name = f"single sends, {sends.in_flight} in flight, {flush.value}"
                    yield compare_sends(ours, java, sends, name, SINGLE_MIN)
                for sends in BATCHES:
                    name = f"batches of {sends.batch:,} x {sends.body_bytes} B, {flush.value}"
                    yield compare_sends(ours, java, sends, name, BATCH_MIN)
                if flush is FlushDiskType.ASYNC_FLUSH:
                    yield compare_pulls(ours, java)
                    yield from listen(ours, java)
                    yield from totals(ours, java)

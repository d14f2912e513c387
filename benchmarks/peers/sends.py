"""Lines of single sends with 64 in flight, beside RocketMQ's broker with its Java client.

Ours is sent to by that client, and by our gRPC client in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from benchmarks.calls.bench_calls import IN_FLIGHT, SENDS_EACH, in_flight, raw_request
from benchmarks.peers.connectors import Bench
from benchmarks.peers.processes import Programs
from benchmarks.peers.rounds import Line, Turn, repeated
from benchmarks.rocketmq.bench_java_broker import SENT, Server, java_server, our_server
from benchmarks.rocketmq.java_client import Sends
from benchmarks.rocketmq.real_cluster import QUEUES
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from tests.interop.rocketmq import V5

# A twentieth of the rows that Spark writes: each send is a request.
ROWS_SHARE = 20


def lines(bench: Bench) -> Iterator[Line]:
    """Yields two lines for each kind of flush."""
    sends = Sends(bench.setting.rows // ROWS_SHARE, 100, IN_FLIGHT)
    for flush in FlushDiskType:
        folder = bench.folder / flush.value
        for part in ("ours", "java"):
            (folder / part).mkdir(parents=True)
        with (
            our_server(flush, folder / "ours", V5) as ours,
            java_server(flush, folder / "java", V5) as java,
            LocalBroker(flush=flush) as by_grpc,
        ):
            by_grpc.create_topic(SENT, QUEUES)
            for name, turn, programs, goal in (
                ("Java client at both", turn_of(ours, sends), programs_of(ours), 0.8),
                ("our gRPC client at ours", grpc_turn(by_grpc), Programs(None, by_grpc.pid), 0.5),
            ):
                yield Line(
                    f"single sends, {IN_FLIGHT} in flight, {name}, {flush.value}",
                    turn,
                    turn_of(java, sends),
                    {"ours": programs, "theirs": programs_of(java)},
                    peer="RocketMQ",
                    goal=goal,
                )


def turn_of(server: Server, sends: Sends) -> Turn:
    """Returns the turn that sends again and again."""
    return repeated(partial(server.client.send, SENT, sends), sends.count)


def grpc_turn(broker: LocalBroker) -> Turn:
    """Returns the turn of our client, with a stream for each send in flight."""
    request = raw_request(SENT, -1)

    def job() -> None:
        asyncio.run(in_flight(broker.endpoint, "/rocketpy.v1.Broker/Append", request))

    return repeated(job, IN_FLIGHT * SENDS_EACH)


def programs_of(server: Server) -> Programs:
    """Returns the client's JVM and the broker."""
    return Programs(server.client.driver.pid, server.process.pid)

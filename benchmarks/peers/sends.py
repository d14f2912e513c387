"""Lines of RocketMQ's own Java client at both brokers: single sends with 64 in flight."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench_java_broker import SENT, Server, java_server, our_server
from benchmarks.java_client import Sends
from benchmarks.peers.connectors import Bench
from benchmarks.peers.processes import Programs
from benchmarks.peers.rounds import Line, Turn, repeated
from rocketpy_broker.store.config import FlushDiskType
from tests.interop.rocketmq import V5

IN_FLIGHT = 64
# A twentieth of the rows that Spark writes: each send is a request.
ROWS_SHARE = 20


def lines(bench: Bench) -> Iterator[Line]:
    """Yields a line for each kind of flush."""
    sends = Sends(bench.setting.rows // ROWS_SHARE, 100, IN_FLIGHT)
    for flush in FlushDiskType:
        folder = bench.folder / flush.value
        for part in ("ours", "java"):
            (folder / part).mkdir(parents=True)
        with (
            our_server(flush, folder / "ours", V5) as ours,
            java_server(flush, folder / "java", V5) as java,
        ):
            yield Line(
                f"single sends, {IN_FLIGHT} in flight, remoting, {flush.value}",
                turn_of(ours, sends),
                turn_of(java, sends),
                {"ours": programs_of(ours), "theirs": programs_of(java)},
                peer="RocketMQ",
            )


def turn_of(server: Server, sends: Sends) -> Turn:
    """Returns the turn that sends again and again."""
    return repeated(partial(server.client.send, SENT, sends), sends.count)


def programs_of(server: Server) -> Programs:
    """Returns the client's JVM and the broker."""
    return Programs(server.client.driver.pid, server.process.pid)

"""A range of a queue at scripted brokers, and pulls of it with pauses that take no time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.pull.range_puller import PullLimits, RangePuller
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.remoting import RemotingCommand, ResponseCode
from tests.support.blocks import bodies_of
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_with
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Script,
    ScriptedPeer,
    Visit,
)

BROKER = "broker-a"
LIMITS = PullLimits(64, 32 << 20, PATIENT, outage_ms_max=60_000, backoff_ms=100)
OPTIONS = PullOptions("group", 1 << 20, fail_on_data_loss=True)
TOLERANT = replace(OPTIONS, fail_on_data_loss=False)


@dataclass
class Waits:
    """The connector's pauses, which take no time; each calls `then`."""

    ms: list[int] = field(default_factory=list)
    then: Callable[[], object] = lambda: None


@dataclass
class PullSetup:
    """A cluster with one queue; its broker plays scripts."""

    cluster: Cluster
    names: Knowledge
    peers: Callable[..., ScriptedPeer]

    def route(self, **brokers: Script | str) -> dict[str, str]:
        """Sets the route to brokers with these scripts, or at these addresses."""
        addresses = {
            key: each if isinstance(each, str) else self.peers(each).address
            for key, each in brokers.items()
        }
        self.names.routes[TOPIC] = route_with(BROKER, **addresses)
        return addresses

    def puller(
        self, begin: int, end: int, options: PullOptions = OPTIONS, limits: PullLimits = LIMITS
    ) -> RangePuller:
        part = QueueRange(TOPIC, 0, begin, end, broker_name=BROKER)
        return RangePuller(self.cluster, limits, options, part)

    def pulled(
        self, begin: int, end: int, options: PullOptions = OPTIONS, limits: PullLimits = LIMITS
    ) -> list[int]:
        """Returns the bodies, which are offsets; asserts that chunks are in order."""
        found: list[int] = []
        reached = begin
        for chunk in self.puller(begin, end, options, limits).chunks():
            assert reached <= chunk.begin <= chunk.end <= end
            reached = chunk.end
            bodies = [int(body) for body in bodies_of(bytes(chunk.records), chunk.sizes)]
            assert all(chunk.begin <= body < chunk.end for body in bodies)
            if not options.is_filtered:
                assert bodies == list(range(chunk.begin, chunk.end))
            found += bodies
        return found


def refusal(code: ResponseCode, remark: str) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda request: request.answer(code, remark=remark)


def first_then(count: int, first: Script, then: Script) -> Script:
    """Plays `first` for `count` connections."""
    visits = itertools.count()

    def script(visit: Visit) -> None:
        chosen = first if next(visits) < count else then
        chosen(visit)

    return script

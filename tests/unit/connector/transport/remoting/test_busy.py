"""Requests of the connector at a busy server: a table that is tested to be complete.

A refused request is repeated after a wait, also the first one. Pulls of ranges have tests of their
own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerBusyError, BrokerError
from pyspark_rocketpy.offsets import BrokerQueue, QueueBounds
from pyspark_rocketpy.transport import remoting
from pyspark_rocketpy.transport.remoting.cluster.client import _clusters, cluster_for
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from pyspark_rocketpy.transport.remoting.pull.offset_queries import RemotingOffsetQueries
from pyspark_rocketpy.transport.remoting.sink import RemotingTransport
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy
from pyspark_rocketpy.transport.write_values import DELAY_TIMED, Attempt, BatchJob, BatchName
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from tests.unit.connector.transport.remoting.conftest import Peers
from tests.unit.connector.transport.remoting.logged_store import LoggedStore
from tests.unit.connector.transport.remoting.pull.test_queries import SUBSCRIPTION
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_of
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Script,
    Visit,
    answering,
    success,
)
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue
from tests.unit.connector.transport.remoting.stored_blocks import of_bodies

CONTROL = "rocketpy_control"
ATTEMPT = Attempt(BatchJob(BatchName("query", 1), 7), 0, 1)
# Answers of a server after which a request is repeated.
BUSY = [
    (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"),
    (ResponseCode.SYSTEM_ERROR, "[TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: 201ms"),
    (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now"),
]
Answer = Callable[[RemotingCommand], RemotingCommand]


@dataclass
class Busy:
    """A cluster of a name server and a broker, which refuse one kind of request for a time."""

    code: RequestCode | None = None
    refusal: tuple[ResponseCode, str] = BUSY[0]
    asked: list[int] = field(default_factory=list)
    waits_ms: list[int] = field(default_factory=list)
    waits_needed: int = 1

    def refuses(self, request: RemotingCommand) -> bool:
        self.asked.append(request.code)
        return request.code == self.code and len(self.waits_ms) < self.waits_needed

    def before(self, answer: Answer) -> Answer:
        """Returns the same answers, except for refused requests."""

        def answered(request: RemotingCommand) -> RemotingCommand:
            if self.refuses(request):
                code, remark = self.refusal
                return request.answer(code, remark=remark)
            return answer(request)

        return answered

    def sleep_ms(self, wait_ms: int) -> None:
        self.waits_ms.append(wait_ms)


class Cluster:
    """A cluster that sends requests to the servers."""

    def __init__(self, busy: Busy, peers: Peers) -> None:
        self.busy = busy
        self.store = LoggedStore(TOPIC)
        self.queue = ScriptedQueue(9)
        self.committed: dict[str, int] = {}
        route = route_of(a=peers(self._script()).address)
        self.names = Knowledge({TOPIC: route, CONTROL: route})
        server = peers(answering(busy.before(self.names.answer)))
        self.config = ClusterConfig((server.address,), PATIENT, PATIENT)
        self.policy = RetryPolicy(4, 100)

    def _script(self) -> Script:
        def script(visit: Visit) -> None:
            for request in visit.requests():
                if self.busy.refuses(request):
                    code, remark = self.busy.refusal
                    visit.send(request.answer(code, remark=remark))
                elif request.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}:
                    assert self.store._take(visit, request)
                else:
                    visit.send(self._answer(request))

        return script

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        code, fields = RequestCode(request.code), request.ext_fields
        if code in {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}:
            return success(request)
        if code == RequestCode.CHECK_CLIENT_CONFIG:
            return success(request)
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed[fields["queueId"]] = int(fields["commitOffset"])
            return success(request)
        if code == RequestCode.QUERY_CONSUMER_OFFSET:
            return success(request, OffsetResponse(4))
        if fields.get("topic") == CONTROL:
            return self.store._answer(request)
        return self.queue.answer(request)

    @property
    def queries(self) -> RemotingOffsetQueries:
        return RemotingOffsetQueries(cluster_for(self.config), self.policy, "g", PATIENT)

    def transport(self, control: str | None = None) -> RemotingTransport:
        return RemotingTransport(self.config, self.policy, PATIENT.ms, control)

    def bounds(self, *, wants_committed: bool = True, pattern: str | None = None) -> object:
        asked = replace(SUBSCRIPTION, wants_committed=wants_committed, topic_pattern=pattern)
        return self.queries.bounds(asked)[TOPIC][BrokerQueue("a", 0)]

    def commit(self) -> object:
        self.queries.commit("g", {TOPIC: {BrokerQueue("a", 0): 5, BrokerQueue("a", 1): 6}}, {})
        return self.committed

    def write(self, *bodies: bytes, delay: int = 0) -> object:
        writer = self.transport().block_writer(None)
        writer.send(replace(of_bodies(*bodies), delay=delay))
        return writer.finish()

    def marked(self) -> object:
        writer = self.transport(CONTROL).block_writer(ATTEMPT)
        writer.write_queues([TOPIC])
        return len(self.store.records[CONTROL, 0])


BOUNDS = QueueBounds(0, 9, 4)
TABLE: list[tuple[RequestCode, Callable[[Cluster], object], object]] = [
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, Cluster.bounds, BOUNDS),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda it: it.write(b"a"), b""),
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda it: it.transport().prepared(TOPIC, is_single=True).control_floor,
        None,
    ),
    (
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        lambda it: it.bounds(pattern=f"{TOPIC}|x"),
        BOUNDS,
    ),
    (RequestCode.GET_BROKER_CLUSTER_INFO, lambda it: it.queries.broker_name(), "a"),
    (
        RequestCode.GET_BROKER_CLUSTER_INFO,
        lambda it: it.transport().prepared(None, is_single=True).control_floor,
        None,
    ),
    (RequestCode.GET_MAX_OFFSET, Cluster.bounds, BOUNDS),
    (RequestCode.GET_MAX_OFFSET, lambda it: it.write(b"a", delay=DELAY_TIMED), b""),
    (
        RequestCode.GET_MAX_OFFSET,
        lambda it: it.transport(CONTROL).prepared(TOPIC, is_single=True).control_floor,
        0,
    ),
    (RequestCode.GET_MAX_OFFSET, Cluster.marked, 1),
    (RequestCode.GET_MIN_OFFSET, Cluster.bounds, BOUNDS),
    (RequestCode.GET_MIN_OFFSET, Cluster.marked, 1),
    (RequestCode.QUERY_CONSUMER_OFFSET, Cluster.bounds, BOUNDS),
    (RequestCode.QUERY_CONSUMER_OFFSET, Cluster.marked, 1),
    (RequestCode.UPDATE_CONSUMER_OFFSET, Cluster.commit, {"0": 5, "1": 6}),
    (RequestCode.HEART_BEAT, Cluster.commit, {"0": 5, "1": 6}),
    (RequestCode.UNREGISTER_CLIENT, Cluster.commit, {"0": 5, "1": 6}),
    (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        lambda it: it.queries.search([QueueTime(TOPIC, 0, 1_003, "a")]),
        [3],
    ),
    (
        RequestCode.PULL_MESSAGE,
        lambda it: it.queries.search([QueueTime(TOPIC, 0, 1_003, "a")]),
        [3],
    ),
    (RequestCode.CHECK_CLIENT_CONFIG, lambda it: it.queries.expression_fault("a = 1"), None),
    (RequestCode.SEND_BATCH_MESSAGE, lambda it: it.write(b"a", b"b"), b""),
    (RequestCode.SEND_MESSAGE_V2, lambda it: it.write(b"a", delay=DELAY_TIMED), b""),
    (RequestCode.SEND_MESSAGE_V2, Cluster.marked, 1),
]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    made = Busy()
    monkeypatch.setattr(clock, "sleep_ms", made.sleep_ms)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1_000 + sum(made.waits_ms))
    return made


@pytest.fixture
def cluster(busy: Busy, peers: Peers) -> Iterator[Cluster]:
    yield Cluster(busy, peers)
    SHARED.close()
    _clusters.clear()


def test_the_table_has_every_request_of_the_connector() -> None:
    named = {
        node.attr
        for path in Path(remoting.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "RequestCode"
    }
    assert named == {code.name for code, _, _ in TABLE}


@pytest.mark.parametrize(("code", "exercise", "result"), TABLE)
@pytest.mark.parametrize("refusal", BUSY)
def test_a_busy_server_is_asked_again_after_a_wait(
    busy: Busy,
    cluster: Cluster,
    code: RequestCode,
    exercise: Callable[[Cluster], object],
    result: object,
    refusal: tuple[ResponseCode, str],
) -> None:
    busy.code, busy.refusal = code, refusal
    assert exercise(cluster) == result
    assert busy.waits_ms[0] == 100
    assert busy.asked.count(code) > 1


@pytest.mark.parametrize(("code", "exercise", "result"), TABLE)
def test_a_server_that_stays_busy_is_an_error_after_the_retries(
    busy: Busy,
    cluster: Cluster,
    code: RequestCode,
    exercise: Callable[[Cluster], object],
    result: object,
) -> None:
    busy.code, busy.waits_needed = code, 1_000
    with pytest.raises(BrokerBusyError, match=r"system busy.*response code 2, SYSTEM_BUSY"):
        exercise(cluster)
    # A group's first queues are committed before its other queues.
    assert busy.waits_ms[:4] == busy.waits_ms[-4:] == [100, 200, 400, 800]


def test_a_name_server_that_is_not_ready_is_asked_again(busy: Busy, cluster: Cluster) -> None:
    busy.code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    busy.refusal = ResponseCode.SYSTEM_ERROR, "name server not ready"
    assert cluster.bounds() == BOUNDS
    assert busy.waits_ms == [100]


def test_an_error_of_a_broker_is_told_at_once(busy: Busy, cluster: Cluster) -> None:
    busy.code, busy.refusal = RequestCode.GET_MAX_OFFSET, (ResponseCode.SYSTEM_ERROR, "no such")
    with pytest.raises(BrokerError, match="no such"):
        cluster.bounds()
    assert busy.waits_ms == []

"""Offset queries to a broker that is away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import grpc
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offsets import QueueBounds
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient, client_for, forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import PAUSE_MS_MAX, GrpcOffsetQueries
from pyspark_rocketpy.transport.retries import BACKOFF_MS_MAX
from pyspark_rocketpy.transport.values import RetryPolicy, Subscription
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.proxies import EXCEPTION_VARIABLES
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.proxies import USER, recording_proxy
from tests.support.queues import numbered
from tests.support.scripted_answers import AnsweringServer, answering

AWAY = grpc.StatusCode.UNAVAILABLE


def bounds(request: broker_pb2.QueryOffsetsRequest) -> broker_pb2.QueryOffsetsResponse:
    topics = [broker_pb2.TopicOffsets(topic=topic) for topic in request.topics]
    return broker_pb2.QueryOffsetsResponse(topics=topics)


RIGHT = {
    "GetBrokerInfo": lambda _: admin_pb2.GetBrokerInfoResponse(
        body_bytes_max=1 << 22, request_bytes_max=1 << 25
    ),
    "QueryOffsets": bounds,
}


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering(RIGHT) as running:
        yield running


def queries_to(server: AnsweringServer, times_max: int) -> GrpcOffsetQueries:
    return GrpcOffsetQueries(server.config, RetryPolicy(times_max, 100))


def ask(queries: GrpcOffsetQueries) -> None:
    assert queries.bounds(Subscription(("T",), None, "g")) == {"T": {}}


def test_k03_a_query_is_repeated_until_the_broker_is_back(
    server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_ms: list[int] = []

    def wait(wait_ms: int) -> None:
        waits_ms.append(wait_ms)
        if len(waits_ms) == 9:
            server.faults.clear()

    monkeypatch.setattr(clock, "sleep_ms", wait)
    queries = queries_to(server, 16)
    ask(queries)
    server.faults["QueryOffsets"] = AWAY
    ask(queries)
    assert waits_ms == [100, 200, 400, 800, 1_600, 3_200, BACKOFF_MS_MAX, 5_000, 5_000]


def test_k03_retries_end(server: AnsweringServer, waits_ms: list[int]) -> None:
    queries = queries_to(server, 2)
    ask(queries)
    server.faults["QueryOffsets"] = AWAY
    with pytest.raises(ConnectionFailedError, match=r"no broker answers at 127\.0\.0\.1"):
        ask(queries)
    assert (server.calls["QueryOffsets"], waits_ms) == (4, [100, 200])


@pytest.mark.parametrize("had_client", [False, True])
def test_before_the_first_answer_a_connection_that_fails_is_not_repeated(
    server: AnsweringServer, waits_ms: list[int], *, had_client: bool
) -> None:
    """Tests also a process that has used the broker before and no longer reaches it."""
    if had_client:
        client_for(server.config)
    server.faults = {"GetBrokerInfo": AWAY, "QueryOffsets": AWAY}
    with pytest.raises(ConnectionFailedError, match="check option endpoints"):
        ask(queries_to(server, 16))
    assert waits_ms == ([100] if had_client else [])


def test_a_query_whose_answer_would_not_change_is_not_repeated(
    server: AnsweringServer, waits_ms: list[int]
) -> None:
    queries = queries_to(server, 16)
    ask(queries)
    server.faults["QueryOffsets"] = grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(ConnectionFailedError, match="answers, but is not a rocketpy broker"):
        ask(queries)
    assert waits_ms == []


@pytest.mark.parametrize(
    ("topic", "count", "is_held"),
    [
        ("T", OFFSET_QUERY_ENTRIES_MAX, True),
        ("T", OFFSET_QUERY_ENTRIES_MAX + 1, False),
        ("T" * 127, 10_000, False),
    ],
)
def test_k03_too_many_queues_for_a_held_call_are_looked_at_now_and_then(
    server: AnsweringServer, waits_ms: list[int], topic: str, count: int, *, is_held: bool
) -> None:
    known = {topic: {numbered(number): QueueBounds(0, 1, -1) for number in range(count)}}
    queries_to(server, 0).bounds(Subscription((topic,), None, "g"), known, 30_000)
    request = server.requests[-1]
    assert len(request.known) == (count if is_held else 0)
    assert request.wait_ms_max == (30_000 if is_held else 0)
    assert waits_ms == ([] if is_held else [PAUSE_MS_MAX])


def test_an_error_names_the_proxy_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in EXCEPTION_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with recording_proxy() as proxy:
        monkeypatch.setenv("grpc_proxy", proxy.url)
        config = ClientConfig(("broker.corp:8081",), 500)
        with pytest.raises(ConnectionFailedError) as caught:
            GrpcOffsetQueries(config, RetryPolicy(16, 100)).broker_name()
    assert f"at broker.corp:8081 through proxy {proxy.address} of environment" in str(caught.value)
    assert USER.partition(":")[2] not in str(caught.value)


def test_a_wrong_endpoint_is_an_error_at_once(waits_ms: list[int]) -> None:
    config = ClientConfig(("127.0.0.1:1",), 100)
    with pytest.raises(ConnectionFailedError, match=r"at 127\.0\.0\.1:1 .*check option endpoints"):
        GrpcOffsetQueries(config, RetryPolicy(16, 100)).broker_name()
    assert waits_ms == []
    forget_client(config)


@pytest.mark.parametrize(("held_ms", "pause_ms"), [(0, 1_000), (400, 600), (1_000, 0), (30_000, 0)])
def test_a_broker_that_holds_no_call_is_asked_after_a_pause(
    waits_ms: list[int], monkeypatch: pytest.MonkeyPatch, held_ms: int, pause_ms: int
) -> None:
    now = [5_000]
    monkeypatch.setattr(clock, "monotonic_ms", lambda: now[0])

    class LongPolling:
        """A client of a broker with one queue, which holds each call for some time."""

        broker_name = "broker-a"

        def query(
            self, _method: object, _request: object, _timeout_ms: int
        ) -> broker_pb2.QueryOffsetsResponse:
            now[0] += held_ms
            queue = broker_pb2.QueueOffsets(max_offset=1, committed_offset=-1)
            topic = broker_pb2.TopicOffsets(topic="T", queues=[queue])
            return broker_pb2.QueryOffsetsResponse(topics=[topic])

    queries = GrpcOffsetQueries(
        ClientConfig(("127.0.0.1:1",), 100),
        RetryPolicy(0, 1),
        client_of=lambda _config: cast("GrpcClient", LongPolling()),
    )
    subscription = Subscription(("T",), None, "g")
    known = queries.bounds(subscription)
    assert queries.bounds(subscription, known, 30_000) == known
    assert sum(waits_ms) == pause_ms

"""Offset queries to a broker that is away for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import grpc
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offsets import QueueBounds
from pyspark_rocketpy.transport.grpc_v1.client import LASTING_FAULTS, BrokerClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import PAUSE_MS_MAX, GrpcOffsetQueries
from pyspark_rocketpy.transport.retrying import BACKOFF_MS_MAX
from pyspark_rocketpy.transport.values import RetryPolicy, Subscription
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.queues import numbered

CONFIG = ClientConfig(("h:1",), 100)


class Fault(grpc.RpcError):
    """What grpc raises for a call that fails."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class FlakyBroker:
    """A client whose broker answers, or fails with the next of the codes that it is given."""

    def __init__(self) -> None:
        self.faults: list[grpc.StatusCode] = []
        self.query_count = 0

    def of(self, _config: ClientConfig) -> BrokerClient:
        return cast("BrokerClient", self)

    @property
    def broker_name(self) -> str:
        self.query_count += 1
        if self.faults:
            raise Fault(self.faults.pop(0))
        return "broker-a"

    def failed(self, error: Fault) -> ConnectionFailedError:
        return ConnectionFailedError("away", is_lasting=error.code() in LASTING_FAULTS)


@pytest.fixture
def broker() -> FlakyBroker:
    return FlakyBroker()


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The waits so far, which pass at once."""
    waits_ms: list[int] = []
    monkeypatch.setattr(clock, "sleep_ms", waits_ms.append)
    return waits_ms


@pytest.fixture
def queries_with(broker: FlakyBroker, paused: list[int]) -> Callable[[int], GrpcOffsetQueries]:
    def make(times_max: int) -> GrpcOffsetQueries:
        return GrpcOffsetQueries(CONFIG, RetryPolicy(times_max, 100), client_of=broker.of)

    return make


def test_k03_a_query_is_repeated_until_the_broker_is_back(
    broker: FlakyBroker, paused: list[int], queries_with: Callable[[int], GrpcOffsetQueries]
) -> None:
    queries = queries_with(16)
    queries.broker_name()
    broker.faults = [grpc.StatusCode.UNAVAILABLE] * 9
    assert queries.broker_name() == "broker-a"
    assert paused == [100, 200, 400, 800, 1_600, 3_200, BACKOFF_MS_MAX, 5_000, 5_000]


def test_k03_retries_end(
    broker: FlakyBroker, paused: list[int], queries_with: Callable[[int], GrpcOffsetQueries]
) -> None:
    queries = queries_with(2)
    queries.broker_name()
    broker.faults = [grpc.StatusCode.UNAVAILABLE] * 9
    with pytest.raises(ConnectionFailedError):
        queries.broker_name()
    assert (broker.query_count, paused) == (4, [100, 200])


def test_the_very_first_query_is_not_repeated(
    broker: FlakyBroker, paused: list[int], queries_with: Callable[[int], GrpcOffsetQueries]
) -> None:
    broker.faults = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(ConnectionFailedError):
        queries_with(16).broker_name()
    assert paused == []


def test_a_query_whose_answer_would_not_change_is_not_repeated(
    broker: FlakyBroker, paused: list[int], queries_with: Callable[[int], GrpcOffsetQueries]
) -> None:
    queries = queries_with(16)
    queries.broker_name()
    broker.faults = [grpc.StatusCode.UNIMPLEMENTED]
    with pytest.raises(ConnectionFailedError):
        queries.broker_name()
    assert paused == []


@pytest.mark.parametrize(
    ("topic", "count", "is_held"),
    [
        ("T", OFFSET_QUERY_ENTRIES_MAX, True),
        ("T", OFFSET_QUERY_ENTRIES_MAX + 1, False),
        ("T" * 127, 10_000, False),
    ],
)
def test_k03_too_many_queues_for_a_held_call_are_looked_at_now_and_then(
    paused: list[int], topic: str, count: int, *, is_held: bool
) -> None:
    class Recording:
        """A client of a broker that answers offset queries."""

        broker_name = "broker-a"

        def __init__(self) -> None:
            self.asked: list[broker_pb2.QueryOffsetsRequest] = []
            self.broker = self

        def QueryOffsets(  # noqa: N802 (a method of the contract)
            self, request: broker_pb2.QueryOffsetsRequest, timeout: float
        ) -> broker_pb2.QueryOffsetsResponse:
            assert timeout > 0
            self.asked.append(request)
            return broker_pb2.QueryOffsetsResponse()

    client = Recording()
    queries = GrpcOffsetQueries(
        CONFIG, RetryPolicy(0, 1), client_of=lambda _config: cast("BrokerClient", client)
    )
    known = {topic: {numbered(number): QueueBounds(0, 1, -1) for number in range(count)}}
    queries.bounds(Subscription((topic,), None, "g"), known, 30_000)
    (request,) = client.asked
    assert len(request.known) == (count if is_held else 0)
    assert request.wait_ms_max == (30_000 if is_held else 0)
    assert paused == ([] if is_held else [PAUSE_MS_MAX])

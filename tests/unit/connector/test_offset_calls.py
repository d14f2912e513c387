"""Questions to a broker that is away for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import grpc
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.client import LASTING_FAULTS, BrokerClient, ClientConfig
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offset_calls import OffsetCalls
from pyspark_rocketpy.retrying import BACKOFF_MS_MAX, RetryPolicy

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
        self.asked = 0

    def of(self, _config: ClientConfig) -> BrokerClient:
        return cast("BrokerClient", self)

    @property
    def broker_name(self) -> str:
        self.asked += 1
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
def calls(broker: FlakyBroker, paused: list[int]) -> Callable[[int], OffsetCalls]:
    def make(times_max: int) -> OffsetCalls:
        return OffsetCalls(CONFIG, RetryPolicy(times_max, 100), client_of=broker.of)

    return make


def test_k03_a_question_is_asked_again_until_the_broker_is_back(
    broker: FlakyBroker, paused: list[int], calls: Callable[[int], OffsetCalls]
) -> None:
    asking = calls(16)
    asking.broker_name()
    broker.faults = [grpc.StatusCode.UNAVAILABLE] * 9
    assert asking.broker_name() == "broker-a"
    assert paused == [100, 200, 400, 800, 1_600, 3_200, BACKOFF_MS_MAX, 5_000, 5_000]


def test_k03_retries_end(
    broker: FlakyBroker, paused: list[int], calls: Callable[[int], OffsetCalls]
) -> None:
    asking = calls(2)
    asking.broker_name()
    broker.faults = [grpc.StatusCode.UNAVAILABLE] * 9
    with pytest.raises(ConnectionFailedError):
        asking.broker_name()
    assert (broker.asked, paused) == (4, [100, 200])


def test_the_very_first_question_is_not_repeated(
    broker: FlakyBroker, paused: list[int], calls: Callable[[int], OffsetCalls]
) -> None:
    broker.faults = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(ConnectionFailedError):
        calls(16).broker_name()
    assert paused == []


def test_an_answer_that_would_not_change_is_not_asked_for_again(
    broker: FlakyBroker, paused: list[int], calls: Callable[[int], OffsetCalls]
) -> None:
    asking = calls(16)
    asking.broker_name()
    broker.faults = [grpc.StatusCode.UNIMPLEMENTED]
    with pytest.raises(ConnectionFailedError):
        asking.broker_name()
    assert paused == []

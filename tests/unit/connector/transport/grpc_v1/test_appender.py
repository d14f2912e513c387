"""Sends of blocks: every one is acknowledged, in order, in spite of any fault."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pyspark_rocketpy.errors import BrokerBusyError, BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.send.appender import IN_FLIGHT_MAX, Appender, StreamForm
from pyspark_rocketpy.transport.retries import BACKOFF_MS_MAX
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_proto.pull_wire import BlockRequest
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.unit.connector.transport.grpc_v1.scripted_broker import (
    BUSY,
    FLUSH_TIMEOUT,
    LASTING,
    LOSE,
    LOSE_ANSWER,
    REFUSE,
    SILENCE,
    STORE,
    ScriptedBroker,
)

COUNT = 3 * IN_FLIGHT_MAX
NAMES = [b"%02d" % number for number in range(COUNT)]


def send_all(
    config: ClientConfig,
    names: Sequence[bytes] = NAMES,
    *,
    times_max: int = 3,
    send_timeout_ms: int = 10_000,
    opened: Callable[..., Any] = GrpcClient.append,
    is_one_by_one: bool = False,
    **limits: float,
) -> list[int]:
    """Sends a block for each name; returns the physical offset of each acknowledged one."""
    places: list[int] = []

    def acknowledge(
        _request: BlockRequest[broker_pb2.AppendRequest], response: broker_pb2.AppendResponse
    ) -> None:
        places.append(response.physical_offset)

    form = StreamForm(opened, acknowledge, **limits)
    appender = Appender(config, RetryPolicy(times_max, 100), send_timeout_ms, form)
    with contextlib.closing(appender):
        for name in names:
            block = wire_block("T", [name])
            head = broker_pb2.AppendRequest(topic="T", record_sizes=block.record_sizes)
            appender.send(BlockRequest(head, block.records))
            if is_one_by_one:
                appender.finish()
        appender.finish()
    return places


def test_p01_every_block_is_acknowledged_in_order() -> None:
    with ScriptedBroker() as broker:
        places = send_all(broker.config)
        assert broker.bodies() == NAMES
    assert places == sorted(places)
    assert len(places) == COUNT


@pytest.mark.parametrize("event", [LOSE, LOSE_ANSWER, BUSY, FLUSH_TIMEOUT])
@pytest.mark.parametrize("at", [0, 1, IN_FLIGHT_MAX, COUNT - 1])
def test_p01_a_block_without_an_acknowledgement_goes_again_with_all_behind_it(
    event: str, at: int, waits_ms: list[int]
) -> None:
    with ScriptedBroker(*[STORE] * at, event) as broker:
        assert len(send_all(broker.config)) == COUNT
        bodies = broker.bodies()
    assert waits_ms == [100]
    # The last copies are in order, and no block from before the failure has a second copy.
    last_copies = [body for place, body in enumerate(bodies) if body not in bodies[place + 1 :]]
    assert last_copies == NAMES
    assert bodies[:at] == NAMES[:at]
    assert not set(NAMES[: max(0, at - IN_FLIGHT_MAX)]) & set(bodies[at:])


def test_retries_are_counted_in_a_row_and_wait_twice_as_long_each_time(
    waits_ms: list[int],
) -> None:
    with ScriptedBroker(*[BUSY] * 3, STORE, *[LOSE] * 3) as broker:
        assert len(send_all(broker.config, NAMES[:2], is_one_by_one=True)) == 2
    assert waits_ms[:3] == [100, 200, 400]
    assert waits_ms[3:] == [100, 200, 400]


def test_waits_grow_to_their_limit(waits_ms: list[int]) -> None:
    with ScriptedBroker(*[BUSY] * 50) as broker:
        assert len(send_all(broker.config, NAMES[:1], times_max=50)) == 1
    assert max(waits_ms) == waits_ms[-1] == BACKOFF_MS_MAX


def test_too_many_refusals_in_a_row_are_the_last_one_s_error(waits_ms: list[int]) -> None:
    with (
        ScriptedBroker(*[BUSY] * 4) as broker,
        pytest.raises(BrokerBusyError, match="response code 2"),
    ):
        send_all(broker.config, NAMES[:1], times_max=3)
    assert len(waits_ms) == 3


@pytest.mark.parametrize(
    ("event", "kind"), [(REFUSE, BrokerError), (LASTING, ConnectionFailedError)]
)
def test_what_no_retry_mends_fails_at_once(
    event: str, kind: type[Exception], waits_ms: list[int]
) -> None:
    with ScriptedBroker(event) as broker, pytest.raises(kind, match="script"):
        send_all(broker.config)
    assert waits_ms == []


def test_a_broker_that_says_nothing_is_asked_again_and_then_named(waits_ms: list[int]) -> None:
    with (
        ScriptedBroker(SILENCE, SILENCE) as broker,
        pytest.raises(ConnectionFailedError, match=r"within 50 ms.*sendTimeout"),
    ):
        send_all(broker.config, NAMES[:1], times_max=1, send_timeout_ms=50)
    assert waits_ms == [100]


def test_a_broker_that_is_gone_is_an_error_after_the_retries(waits_ms: list[int]) -> None:
    with ScriptedBroker() as broker:
        config = ClientConfig(broker.config.endpoints, 500)
        send_all(config, NAMES[:1])
        broker.stop()
        with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{broker.port}"):
            send_all(config)
    assert waits_ms == [100, 200, 400]


class LostCall:
    """A call without answers and without an end, which cannot be cancelled."""

    def __init__(self) -> None:
        self._forgotten = threading.Event()

    def __iter__(self) -> LostCall:
        return self

    def __next__(self) -> broker_pb2.AppendResponse:
        self._forgotten.wait()
        raise StopIteration

    def cancel(self) -> bool:
        """Fails to cancel the call."""
        return False

    def forget(self) -> None:
        """Releases its thread at the end of the test."""
        self._forgotten.set()


def test_a_call_that_grpc_has_lost_is_left_behind(waits_ms: list[int]) -> None:
    call = LostCall()

    def lose_first(client: GrpcClient, requests: Iterator[Any]) -> Any:
        return client.append(requests) if waits_ms else call

    with ScriptedBroker() as broker:
        send_all(
            broker.config,
            NAMES[:1],
            send_timeout_ms=1_000,
            opened=lose_first,
            cancel_seconds_max=0.01,
        )
        assert broker.bodies() == NAMES[:1]
    assert waits_ms == [100]
    call.forget()


def test_the_next_endpoint_takes_over(waits_ms: list[int]) -> None:
    with ScriptedBroker(*[STORE] * 5, LOSE) as first, ScriptedBroker() as second:
        endpoints = (*first.config.endpoints, *second.config.endpoints)
        config = ClientConfig(endpoints, 2_000)
        waited = waits_ms.append

        def wait_and_stop(duration_ms: int) -> None:
            waited(duration_ms)
            first.stop()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pyspark_rocketpy.clock.sleep_ms", wait_and_stop)
            assert len(send_all(config)) == COUNT
        assert first.bodies()[:5] == NAMES[:5]
        assert second.bodies() == NAMES[5:]

"""RocketMQ's clients find a LocalBroker by its name server."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from tests.broker.nameserver.registrations import addresses
from tests.support.broker.clients.remoting_client import connected


def routed(name_server: str, topic: str) -> dict[str, dict[int, str]]:
    """Returns the brokers of a topic by a name server."""

    async def ask() -> dict[str, dict[int, str]]:
        async with connected(int(name_server.rpartition(":")[2])) as client:
            return await addresses(client, topic)

    return asyncio.run(ask())


def test_a_topic_is_routed_to_the_broker_as_soon_as_it_exists() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        expected = {"broker-a": {0: broker.remoting_endpoint}}
        assert routed(broker.name_server, "T") == expected
        broker.delete_topic("T")
        assert routed(broker.name_server, "T") == {}


def test_the_addresses_stay_with_a_restart_and_in_a_copy() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        before = broker.name_server, broker.remoting_endpoint, broker.endpoint
        assert len(set(before)) == 3
        broker.kill()
        broker.start()
        copy = pickle.loads(pickle.dumps(broker))
        for each in (broker, copy):
            assert (each.name_server, each.remoting_endpoint, each.endpoint) == before
        assert routed(copy.name_server, "T") == {"broker-a": {0: before[1]}}


def test_the_program_s_environment_registers_no_local_broker_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETPY_NAME_SERVER", "no address")
    monkeypatch.setenv("ROCKETPY_ADVERTISE_HOST", "elsewhere")
    monkeypatch.setenv("ROCKETPY_ADVERTISE_PORT", "1")
    with LocalBroker() as broker:
        assert routed(broker.name_server, "TBW102") == {"broker-a": {0: broker.remoting_endpoint}}


def test_a_broker_that_was_not_started_has_no_address() -> None:
    broker = LocalBroker()
    for name in ("name_server", "remoting_endpoint"):
        with pytest.raises(LocalBrokerError, match="no endpoint yet"):
            getattr(broker, name)

"""Heartbeats that are wrong or exceed the broker's limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, groups_pb2
from tests.support.broker.clients.group_clients import (
    consumer,
    heartbeat,
    members,
    sql,
    subscription,
    subscriptions,
    unregister,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, another_connection

BAD_HEARTBEATS = [
    pytest.param("", [consumer("g")], [], "client_id is ''", id="no client id"),
    pytest.param("c" * 256, [consumer("g")], [], "accepted is 1 to 255 bytes", id="long id"),
    pytest.param("ä" * 128, [consumer("g")], [], "accepted is 1 to 255 bytes", id="wide id"),
    pytest.param("c\n1", [consumer("g")], [], r"client_id is 'c\n1'", id="control character"),
    pytest.param("c", [], [], "number of groups is 0", id="no groups"),
    pytest.param("c", [], ["p"] * 101, "number of groups is 101", id="many groups"),
    pytest.param("c", [consumer("")], [], "consumer_group is ''", id="no group name"),
    pytest.param("c", [consumer("a b")], [], "consumer_group is 'a b'", id="group name"),
    pytest.param("c", [consumer("g" * 121)], [], "1 to 120 of the", id="long group name"),
    pytest.param("c", [consumer("g")], ["a b"], "producer_group is 'a b'", id="producer name"),
    pytest.param("c", [consumer("g")], ["p" * 121], "1 to 120 of the", id="long producer name"),
    pytest.param("c", [consumer("g"), consumer("g")], [], "group is 'g'", id="group twice"),
    pytest.param("c", [consumer("g")], ["p", "p"], "group is 'p'", id="producer twice"),
    pytest.param("c", [consumer("g", "T", "T")], [], "each topic once", id="topic twice"),
    pytest.param("c", [consumer("g", "a b")], [], "topic is 'a b'", id="topic name"),
    pytest.param("c", [consumer("g", "")], [], "topic is ''", id="no topic name"),
    pytest.param("c", [consumer("g", "T" * 128)], [], "1 to 127 of the", id="long topic"),
    pytest.param(
        "c", [consumer("g", consume_type=0)], [], "consume_type is 0", id="no consume type"
    ),
    pytest.param("c", [consumer("g", consume_type=9)], [], "consume_type is 9", id="consume type"),
    pytest.param(
        "c", [consumer("g", message_model=0)], [], "message_model is 0", id="no message model"
    ),
    pytest.param(
        "c",
        [consumer("g", consume_from_where=0)],
        [],
        "consume_from_where is 0, accepted is CONSUME_FROM_LAST_OFFSET (1)",
        id="no from where",
    ),
    pytest.param(
        "c",
        [consumer("g", groups_pb2.Subscription(topic="T", expression_type="XPATH"))],
        [],
        "expression_type is 'XPATH', accepted is TAG or SQL92",
        id="expression type",
    ),
    pytest.param("c", [consumer("g", sql(""))], [], "a condition of SQL92", id="no condition"),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, " || "))],
        [],
        "expression is ' || '",
        id="separators only",
    ),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, "a" * 16_385))],
        [],
        "bytes of an expression is 16385",
        id="long expression",
    ),
    pytest.param(
        "c",
        [consumer("g", *(f"T{number}" for number in range(1_001)))],
        [],
        "number of subscriptions is 1001",
        id="many subscriptions",
    ),
    pytest.param(
        "c",
        [consumer(f"g{group}", *(f"T{each}" for each in range(667))) for group in range(3)],
        [],
        "number of subscriptions is 2001, accepted is 2000 or fewer in one request",
        id="many in all",
    ),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, "a" * (1 << 20)))],
        [],
        "bytes of the request is 1048",
        id="large request",
    ),
]


@pytest.mark.parametrize(("client_id", "consumers", "producers", "said"), BAD_HEARTBEATS)
async def test_g01_a_heartbeat_that_is_wrong_in_one_thing_does_nothing(
    start_broker: StartBroker,
    tmp_path: Path,
    client_id: str,
    consumers: list[Any],
    producers: list[str],
    said: str,
) -> None:
    async with start_broker() as running:
        if len(consumers) == 1:
            consumers = [consumer("good", "T"), *consumers]
        status = await heartbeat(running, client_id, *consumers, producers=producers)
        assert status.code == ResponseCode.INVALID_PARAMETER
        assert said in status.remark
        assert len(status.remark) < 1_000
        assert await members(running, "good") == []
    assert not (tmp_path / "config" / "subscriptionGroup.json").exists()


async def refused(running: RunningBroker, client_id: str, *consumers: Any, said: str) -> None:
    status = await heartbeat(running, client_id, *consumers)
    assert status.code == ResponseCode.SYSTEM_BUSY
    assert said in status.remark


def limits(**fields: int) -> Limits:
    return Limits(clients=ClientLimits(**fields))


async def test_g01_only_so_many_clients_are_taken(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(clients_max=2)) as running:
        await heartbeat(running, "c1", consumer("g"))
        await heartbeat(running, "c2", producers=["p"])
        await refused(
            running, "c3", consumer("h"), said="number of clients would exceed the limit 2"
        )
        assert "h" not in running.broker.services.groups.configs
        assert (await heartbeat(running, "c1", consumer("h"))).code == 0


async def test_g01_of_two_clients_at_once_the_last_place_is_for_one(
    start_broker: StartBroker,
) -> None:
    async with start_broker(limits=limits(clients_max=1)) as running:
        # Each counts as the first while its new group is saved.
        statuses = await asyncio.gather(
            heartbeat(running, "c1", consumer("g")), heartbeat(running, "c2", consumer("h"))
        )
        assert sorted(status.code for status in statuses) == [0, ResponseCode.SYSTEM_BUSY]
        assert len(await members(running, "g") + await members(running, "h")) == 1


async def test_g01_only_so_many_groups_come_to_be_by_their_first_use(
    start_broker: StartBroker,
) -> None:
    async with start_broker(limits=limits(groups_max=9)) as running:
        assert (await heartbeat(running, "c1", consumer("g"))).code == 0
        said = "number of consumer groups would exceed the limit 9"
        await refused(running, "c1", consumer("h"), said=said)
        await running.create_topic("T", queues=1)
        entry = broker_pb2.CommittedOffset(topic="T", queue_id=0, offset=1)
        request = broker_pb2.CommitOffsetsRequest(consumer_group="h", offsets=[entry])
        status = (await running.data.CommitOffsets(request)).status
        assert status.code == ResponseCode.SYSTEM_BUSY
        assert said in status.remark
        assert (await heartbeat(running, "c2", consumer("g"))).code == 0
        assert (await heartbeat(running, "c2", consumer("TOOLS_CONSUMER"))).code == 0


async def test_g01_only_so_many_registrations_are_taken(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(registrations_max=3)) as running:
        await heartbeat(running, "c1", consumer("g"), consumer("h"))
        await refused(
            running,
            "c2",
            consumer("g"),
            consumer("h"),
            said="registrations would exceed the limit 3",
        )
        assert await members(running, "g") == ["c1"]
        assert (await heartbeat(running, "c1", consumer("g"), consumer("h"))).code == 0
        assert (await heartbeat(running, "c2", consumer("g"))).code == 0


async def test_n12_g01_only_so_many_groups_have_one_client(start_broker: StartBroker) -> None:
    """Asserts that a leaving client leaves all of its groups in one step."""
    async with start_broker(limits=limits(groups_per_client_max=3)) as running:
        assert (await heartbeat(running, "c1", consumer("g"), producers=["g"])).code == 0
        said = "number of groups of client 'c1' would exceed the limit 3; unregister it"
        await refused(running, "c1", consumer("h"), consumer("i"), said=said)
        assert await members(running, "g") == ["c1"]
        assert (await heartbeat(running, "c1", consumer("g"), consumer("h"))).code == 0
        assert (await heartbeat(running, "c2", consumer("i"))).code == 0


async def test_g01_only_so_many_clients_are_in_one_group(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(members_per_group_max=2)) as running:
        for client_id in ("c1", "c2", "c1"):
            assert (await heartbeat(running, client_id, consumer("g"))).code == 0
        said = "number of clients of consumer group 'g' would exceed the limit 2"
        await refused(running, "c3", consumer("g"), said=said)
        assert (await heartbeat(running, "c3", producers=["g"])).code == 0


async def test_g01_subscriptions_take_only_so_much_memory(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(subscription_bytes_max=2_000)) as running:
        large = subscription("T", 1, "a" * 1_000)
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        said = "bytes of all subscriptions would exceed the limit 2000"
        await refused(running, "c2", consumer("h", large), said=said)
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
        assert await subscriptions(running, "g") == {"T": (1, "a" * 1_000)}
        assert (await heartbeat(running, "c1", consumer("g"))).code == 0
        assert (await heartbeat(running, "c2", consumer("h", large))).code == 0


async def test_g01_a_connection_has_a_limited_number_of_registrations(
    start_broker: StartBroker,
) -> None:
    limits = Limits(clients=ClientLimits(registrations_per_connection_max=3))
    async with start_broker(limits=limits) as running:
        assert (await heartbeat(running, "c1", consumer("g"), producers=["p"])).code == 0
        refused = await heartbeat(running, "c2", consumer("g"), producers=["p"])
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "number of registrations of the connection 127.0.0.1:" in refused.remark
        assert await members(running, "g") == ["c1"]
        async with another_connection(running) as other:
            assert (await heartbeat(other, "c2", consumer("g"), producers=["p"])).code == 0
            # A client that comes by another connection counts there.
            assert (await heartbeat(other, "c1", producers=["p"])).code == 0
        assert (await heartbeat(running, "c3", consumer("g"), producers=["p"])).code == 0


async def test_g01_a_connection_has_a_limited_share_of_the_subscriptions(
    start_broker: StartBroker,
) -> None:
    limits = Limits(clients=ClientLimits(subscription_bytes_per_connection_max=2_000))
    async with start_broker(limits=limits) as running:
        large = subscription("T", 1, "a" * 1_000)
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        refused = await heartbeat(running, "c1", consumer("h", large))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "bytes of the subscriptions of the connection 127.0.0.1:" in refused.remark
        assert "would exceed the limit 2000" in refused.remark
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        async with another_connection(running) as other:
            assert (await heartbeat(other, "c2", consumer("h", large))).code == 0
            # The group counts where its last heartbeat came from.
            assert (await heartbeat(running, "c1", consumer("g"))).code == 0
            assert (await heartbeat(running, "c3", consumer("i", large))).code == 0
        assert (await unregister(running, "c3")).code == 0
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        consumers = running.broker.services.groups.clients.consumers
        for client_id in ("c1", "c2"):
            assert (await unregister(running, client_id)).code == 0
        assert consumers.subscription_bytes == 0

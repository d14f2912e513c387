"""Members of a group, and the ways out of it: by request, by timeout, by the stream's end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.support.broker.clients.group_clients import (
    connections,
    consumer,
    heartbeat,
    listening,
    lock,
    members,
    unregister,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until


async def producers(running: RunningBroker, group: str) -> list[str]:
    return [each.client_id for each in (await connections(running, group)).producers]


async def test_g03_members_are_listed_by_group_in_order(running: RunningBroker) -> None:
    for client_id in ("c2", "c10", "c1", "c2"):
        await heartbeat(running, client_id, consumer("g"), producers=["p"])
    await heartbeat(running, "other", consumer("h"))
    assert await members(running, "g") == ["c1", "c10", "c2"]
    assert await producers(running, "p") == ["c1", "c10", "c2"]


async def test_g03_a_group_without_clients_has_no_members(running: RunningBroker) -> None:
    await heartbeat(running, "c1", producers=["g"])
    request = groups_pb2.ListMembersRequest(consumer_group="g")
    response = await running.groups.ListMembers(request)
    assert response.status.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group, g" in response.status.remark
    found = await connections(running, "nobody")
    assert (len(found.consumers), len(found.producers)) == (0, 0)
    assert not found.HasField("consumer_data")


async def test_g03_a_client_leaves_the_groups_that_it_names(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        for client_id in ("c1", "c2"):
            await heartbeat(running, client_id, consumer("g"), consumer("h"), producers=["p"])
        assert {await told.changed(), await told.changed()} == {"g", "h"}
        assert (await unregister(running, "c2", consumer="g")).code == 0
        assert await told.changed() == "g"
        assert await members(running, "g") == ["c1"]
        assert await members(running, "h") == ["c1", "c2"]
        assert (await unregister(running, "c2", producer="p")).code == 0
        assert await producers(running, "p") == ["c1"]
        assert await members(running, "h") == ["c1", "c2"]


async def test_g03_a_client_that_names_no_group_leaves_all(running: RunningBroker) -> None:
    await heartbeat(running, "c1", consumer("g"), consumer("h"), producers=["p"])
    assert (await unregister(running, "c1")).code == 0
    assert await members(running, "g") == await members(running, "h") == []
    assert await producers(running, "p") == []


async def test_g03_the_last_member_takes_the_groups_subscriptions_along(
    running: RunningBroker,
) -> None:
    clients = running.broker.services.groups.clients
    await heartbeat(running, "c1", consumer("g", "T"))
    await heartbeat(running, "c2", consumer("g", "T"))
    await unregister(running, "c1")
    assert clients.consumers.is_subscribed("g", "T")
    await unregister(running, "c2")
    assert not clients.consumers.is_subscribed("g", "T")
    assert clients.consumers.subscription_bytes == 0
    assert "g" in running.broker.services.groups.configs


@pytest.mark.parametrize("words", [{"consumer": "never"}, {"producer": "never"}, {}])
async def test_g03_leaving_what_one_is_not_in_is_no_error(
    words: dict[str, str], running: RunningBroker
) -> None:
    await heartbeat(running, "c1", consumer("g"))
    assert (await unregister(running, "c2", **words)).code == 0
    assert await members(running, "g") == ["c1"]
    assert "never" not in running.broker.services.groups.configs


@pytest.mark.parametrize(
    ("client_id", "words", "said"),
    [
        ("", {}, "client_id is ''"),
        ("c" * 256, {}, "client_id is 'c"),
        ("c1", {"consumer": "a b"}, "consumer_group is 'a b'"),
        ("c1", {"producer": "a b"}, "producer_group is 'a b'"),
        ("c1", {"consumer": "g" * 121}, "1 to 120"),
        ("c1", {"producer": "p" * 121}, "1 to 120"),
    ],
)
async def test_g03_a_bad_unregistration_is_refused(
    client_id: str, words: dict[str, str], said: str, running: RunningBroker
) -> None:
    await heartbeat(running, "c1", consumer("g"))
    status = await unregister(running, client_id, **words)
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert said in status.remark
    assert await members(running, "g") == ["c1"]


@pytest.mark.parametrize("group", ["", "a b", "g" * 121])
async def test_g03_a_bad_name_has_no_member_list(group: str, running: RunningBroker) -> None:
    request = groups_pb2.ListMembersRequest(consumer_group=group)
    status = (await running.groups.ListMembers(request)).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert "consumer_group is" in status.remark


# A producer group may have the name of any topic.
@pytest.mark.parametrize(("field", "limit"), [("consumer_group", 120), ("producer_group", 127)])
@pytest.mark.parametrize("is_long", [False, True])
async def test_g03_a_bad_name_has_no_connections(
    field: str, limit: int, is_long: bool, running: RunningBroker
) -> None:
    request = groups_pb2.ConnectionsRequest()
    setattr(request, field, "g" * (limit + 1) if is_long else "a b")
    status = (await running.groups.Connections(request)).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert f"{field} is" in status.remark


REQUESTS = [
    ("Unregister", groups_pb2.UnregisterRequest(client_id="c" * (1 << 20))),
    ("ListMembers", groups_pb2.ListMembersRequest(consumer_group="g" * (1 << 20))),
    ("Connections", groups_pb2.ConnectionsRequest(producer_group="g" * (1 << 20))),
    ("LockQueues", groups_pb2.LockQueuesRequest(client_id="c" * (1 << 20))),
    ("UnlockQueues", groups_pb2.UnlockQueuesRequest(client_id="c" * (1 << 20))),
]


@pytest.mark.parametrize(("method", "request_"), REQUESTS, ids=[name for name, _ in REQUESTS])
async def test_g03_a_request_that_is_too_large_is_not_even_decoded(
    method: str, request_: Any, running: RunningBroker
) -> None:
    status = (await getattr(running.groups, method)(request_)).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert "bytes of the request is 10485" in status.remark
    assert "accepted is 524288 or fewer" in status.remark


# --- Silence ---


async def advance(running: RunningBroker, delta_ms: int) -> None:
    """Moves the clock by whole intervals of the housekeeping, which runs each time."""
    for _ in range(delta_ms // 10_000):
        running.clock.advance(10_000)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_b08_a_silent_client_expires_and_its_group_is_told(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", consumer("g", "T"))
        await heartbeat(running, "c2", consumer("g", "T"), producers=["p"])
        assert await told.changed() == "g"
        await advance(running, 60_000)
        await heartbeat(running, "c1", consumer("g", "T"))
        await advance(running, 60_000)
        assert await members(running, "g") == ["c1", "c2"]
        await advance(running, 10_000)
        assert await told.changed() == "g"
        assert await members(running, "g") == ["c1"]
        assert await producers(running, "p") == []


async def test_b08_a_heartbeat_that_is_exactly_that_old_is_not_too_old(
    running: RunningBroker,
) -> None:
    running.clock.advance(1)
    await heartbeat(running, "c1", consumer("g"))
    running.clock.advance(9_999)
    await advance(running, EXPIRY_MS - 10_000)
    assert await members(running, "g") == ["c1"]
    running.clock.advance(10_000)
    await until(lambda: not running.broker.services.groups.clients.groups_of("c1"))


async def test_b08_a_group_that_is_named_no_more_is_left_after_its_time(
    running: RunningBroker,
) -> None:
    await heartbeat(running, "c1", consumer("g"), consumer("h"))
    for _ in range(3):
        await heartbeat(running, "c1", consumer("h"))
        await advance(running, 50_000)
    assert await members(running, "g") == []
    assert await members(running, "h") == ["c1"]


async def test_b08_the_stream_of_an_expired_client_ends_and_says_why(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", producers=["p"])
        await advance(running, 130_000)
        notice = await told.next()
        assert notice.status.code == ResponseCode.ILLEGAL_OPERATION
        assert "client 'c1' sent no heartbeat for 120 seconds" in notice.status.remark


async def test_b08_a_whole_group_expires_at_once_and_can_come_back(running: RunningBroker) -> None:
    for client_id in ("c1", "c2", "c3"):
        await heartbeat(running, client_id, consumer("g", "T"), producers=["p"])
    await advance(running, 130_000)
    assert await members(running, "g") == []
    assert running.broker.services.groups.clients.consumers.subscription_bytes == 0
    await heartbeat(running, "c1", consumer("g", "T"))
    await advance(running, 10_000)
    assert await members(running, "g") == ["c1"]
    await advance(running, 120_000)
    assert await members(running, "g") == []


async def test_b08_a_client_that_is_alive_elsewhere_keeps_its_stream(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", consumer("g"))
        assert await told.changed() == "g"
        for _ in range(3):
            await advance(running, 50_000)
            await heartbeat(running, "c1", producers=["p"])
        assert await members(running, "g") == []
        await heartbeat(running, "c1", consumer("h"))
        assert await told.changed() == "h"


async def test_b08_silence_is_told_also_where_joining_is_not(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        config = SubscriptionGroupConfig("calm", notify_consumer_ids_changed_enable=False)
        await running.broker.services.groups.configs.update(config)
        await heartbeat(running, "c2", consumer("calm"))
        for _ in range(3):
            await heartbeat(running, "c1", consumer("calm"))
            await advance(running, 50_000)
        assert await told.changed() == "calm"
        assert await members(running, "calm") == ["c1"]


async def test_b08_a_clock_that_is_set_expires_nobody(running: RunningBroker) -> None:
    await heartbeat(running, "c1", consumer("g"))
    running.clock.jump(1_000_000)
    await advance(running, 20_000)
    assert await members(running, "g") == ["c1"]


async def test_b08_g04_the_locks_of_an_expired_client_last_as_long_as_they_do(
    running: RunningBroker,
) -> None:
    await heartbeat(running, "c1", consumer("g"))
    await advance(running, 110_000)
    assert await lock(running, "c1", [0]) == [0]
    await advance(running, 20_000)
    assert await members(running, "g") == []
    assert await lock(running, "c2", [0]) == []
    await advance(running, 50_000)
    assert await lock(running, "c2", [0]) == [0]


async def test_b08_members_are_forgotten_by_a_restart_and_come_back(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("g"))
    async with start_broker() as running:
        assert await members(running, "g") == []
        assert "g" in running.broker.services.groups.configs
        await heartbeat(running, "c1", consumer("g"))
        assert await members(running, "g") == ["c1"]

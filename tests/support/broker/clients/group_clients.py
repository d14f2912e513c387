"""Clients of a running broker for tests: heartbeats, members, and notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rocketpy_proto.rocketpy.v1 import common_pb2, groups_pb2
from tests.support.broker.running_broker import RunningBroker
from tests.support.time_limits import WAIT_SECONDS_MAX


def subscription(topic: str, version: int = 1, text: str = "*") -> groups_pb2.Subscription:
    return groups_pb2.Subscription(topic=topic, sub_version=version, expression=text)


def sql(text: str) -> groups_pb2.Subscription:
    return groups_pb2.Subscription(topic="T", expression_type="SQL92", expression=text)


def consumer(group: str, *topics: str | groups_pb2.Subscription, **fields: Any) -> Any:
    """Returns a consumer group: by default a push consumer's in a cluster."""
    subscriptions = [subscription(topic) if isinstance(topic, str) else topic for topic in topics]
    defaults = {
        "consume_type": groups_pb2.CONSUME_PASSIVELY,
        "message_model": groups_pb2.CLUSTERING,
        "consume_from_where": groups_pb2.CONSUME_FROM_LAST_OFFSET,
    }
    return groups_pb2.ConsumerData(
        consumer_group=group, subscriptions=subscriptions, **{**defaults, **fields}
    )


def changed(group: str) -> groups_pb2.Notice:
    """Returns the notice that members or topics of a group have changed."""
    return groups_pb2.Notice(members_changed=groups_pb2.MembersChanged(consumer_group=group))


async def heartbeat(
    running: RunningBroker, client_id: str, *consumers: Any, producers: Sequence[str] = ()
) -> common_pb2.Status:
    request = groups_pb2.HeartbeatRequest(
        client_id=client_id, consumers=consumers, producer_groups=producers
    )
    response: groups_pb2.HeartbeatResponse = await running.groups.Heartbeat(request)
    return response.status


async def members(running: RunningBroker, group: str) -> list[str]:
    """Returns the client ids of a group; empty if the broker reports none."""
    request = groups_pb2.ListMembersRequest(consumer_group=group)
    response: groups_pb2.ListMembersResponse = await running.groups.ListMembers(request)
    assert bool(response.client_ids) == (response.status.code == 0)
    return list(response.client_ids)


async def connections(running: RunningBroker, group: str) -> groups_pb2.ConnectionsResponse:
    request = groups_pb2.ConnectionsRequest(consumer_group=group, producer_group=group)
    response: groups_pb2.ConnectionsResponse = await running.groups.Connections(request)
    assert response.status.code == 0
    return response


async def subscriptions(running: RunningBroker, group: str) -> dict[str, tuple[int, str]]:
    """Returns version and expression of each topic, as the broker has them."""
    found = (await connections(running, group)).consumer_data.subscriptions
    return {each.topic: (each.sub_version, each.expression) for each in found}


async def unregister(
    running: RunningBroker, client_id: str, *, consumer: str = "", producer: str = ""
) -> common_pb2.Status:
    request = groups_pb2.UnregisterRequest(
        client_id=client_id, consumer_group=consumer, producer_group=producer
    )
    response: groups_pb2.UnregisterResponse = await running.groups.Unregister(request)
    return response.status


async def lock(
    running: RunningBroker, client_id: str, queue_ids: Sequence[int], group: str = "g"
) -> list[int]:
    """Locks queues of topic T; returns the ids of the queues that the client has."""
    response = await lock_response(running, client_id, queue_ids, group)
    assert response.status.code == 0, response.status.remark
    return [queue.queue_id for queue in response.queues]


async def lock_response(
    running: RunningBroker,
    client_id: str,
    queue_ids: Sequence[int],
    group: str = "g",
    topic: str = "T",
) -> groups_pb2.LockQueuesResponse:
    queues = [groups_pb2.LockedQueue(topic=topic, queue_id=each) for each in queue_ids]
    request = groups_pb2.LockQueuesRequest(consumer_group=group, client_id=client_id, queues=queues)
    response: groups_pb2.LockQueuesResponse = await running.groups.LockQueues(request)
    return response


class Listener:
    """A client's stream of notices."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def changed(self) -> str:
        """Returns the group of the next notice, which reports changed members."""
        notice = await self.next()
        assert notice.WhichOneof("notice") == "members_changed", notice
        return notice.members_changed.consumer_group

    async def next(self) -> groups_pb2.Notice:
        notice: groups_pb2.Notice = await asyncio.wait_for(self.call.read(), WAIT_SECONDS_MAX)
        return notice


@asynccontextmanager
async def listening(running: RunningBroker, client_id: str) -> AsyncIterator[Listener]:
    """Yields a stream that the broker has accepted; its end removes the client."""
    call = running.groups.Notices(groups_pb2.NoticesRequest(client_id=client_id))
    await call.initial_metadata()
    try:
        yield Listener(call)
    finally:
        call.cancel()

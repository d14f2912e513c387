"""Clients of groups by remoting for tests: heartbeats, members, and the server's requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import (
    EXCHANGES,
    RESPONSE_BODIES,
    Body,
    RemotingCommand,
    decode_body,
    encode_body,
)
from rocketpy_proto.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketpy_proto.remoting.headers.clients import ConsumerGroupRequest, UnregisterClientRequest
from tests.support.broker.clients.remoting_client import RemotingClient


def consumer(group: str, *topics: str | SubscriptionData, **fields: Any) -> ConsumerData:
    """Returns a consumer group: by default a push consumer's in a cluster."""
    subscriptions = tuple(
        SubscriptionData(topic, sub_version_ms=1) if isinstance(topic, str) else topic
        for topic in topics
    )
    return ConsumerData(group, subscriptions=subscriptions, **fields)


def heartbeat_body(
    client_id: str, *consumers: ConsumerData, producers: Sequence[str] = (), **fields: Any
) -> bytes:
    groups = tuple(map(ProducerData, producers))
    return encode_body(HeartbeatData(client_id, groups, consumers, **fields))


async def heartbeat(
    client: RemotingClient,
    client_id: str,
    *consumers: ConsumerData,
    producers: Sequence[str] = (),
    **fields: Any,
) -> RemotingCommand:
    """Returns the answer to a heartbeat that is accepted."""
    body = heartbeat_body(client_id, *consumers, producers=producers, **fields)
    answer = await client.ask(Code.HEART_BEAT, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def unregister(client: RemotingClient, client_id: str, **groups: str) -> None:
    header = UnregisterClientRequest(client_id, **groups)
    answer = await client.ask(Code.UNREGISTER_CLIENT, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def members(client: RemotingClient, group: str) -> list[str]:
    """Returns the client ids of a group; empty if the broker reports none."""
    answer = await client.ask(Code.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest(group))
    if answer.code:
        return []
    return list(body_of(Code.GET_CONSUMER_LIST_BY_GROUP, answer).consumer_ids)


def body_of(code: Code, answer: RemotingCommand) -> Any:
    """Returns the body of a successful answer."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found: Body = decode_body(RESPONSE_BODIES[code], answer.body)
    return found


async def changed(client: RemotingClient) -> str:
    """Returns the group of the next notice, which reports changed members."""
    return changed_group(await client.request())


def changed_group(command: RemotingCommand) -> str:
    """Returns the group of a notice that reports changed members."""
    assert (command.code, command.is_one_way) == (Code.NOTIFY_CONSUMER_IDS_CHANGED, True)
    header: ConsumerGroupRequest = EXCHANGES[Code.NOTIFY_CONSUMER_IDS_CHANGED].request.decode(
        command.ext_fields
    )
    return header.consumer_group

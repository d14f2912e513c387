"""Registrations of brokers, as RocketMQ's brokers send them."""

from __future__ import annotations

from typing import Any

from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.model.configs import DataVersion, TopicConfig
from rocketpy_proto.remoting import RemotingCommand, decode_body, encode_body
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    encode_compressed,
)
from rocketpy_proto.remoting.bodies.routes import TopicRouteData
from rocketpy_proto.remoting.headers.cluster import BrokerRequest, RegisterBrokerRequest
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest
from tests.support.broker.clients.remoting_client import RemotingClient

CLUSTER, NAME, ADDRESS, HA_ADDRESS = "C", "broker-a", "10.0.0.1:10911", "10.0.0.1:10912"


def table(*topics: str, counter: int = 1, state: int = 0, queues: int = 4) -> TopicConfigTable:
    """Returns the topics of a broker."""
    return TopicConfigTable(
        {topic: TopicConfig(topic, queues, queues) for topic in topics},
        DataVersion(counter, 1_000, state),
    )


def registration(**changes: Any) -> RegisterBrokerRequest:
    """Returns the header of a master's registration, with changes."""
    fields = {
        "broker_name": NAME,
        "broker_addr": ADDRESS,
        "cluster_name": CLUSTER,
        "broker_id": 0,
        "ha_server_addr": HA_ADDRESS,
        "is_acting_master_enabled": False,
    }
    return RegisterBrokerRequest(**{**fields, **changes})


async def register(
    client: RemotingClient,
    topics: TopicConfigTable | None,
    *,
    is_compressed: bool = False,
    **changes: Any,
) -> RemotingCommand:
    """Registers a broker; returns the answer."""
    body = b""
    if topics is not None:
        content = RegisterBrokerBody(topics)
        body = encode_compressed(content) if is_compressed else encode_body(content)
    header = registration(
        **{"is_compressed": is_compressed, "body_crc32": body_crc32(body), **changes}
    )
    return await client.ask(RequestCode.REGISTER_BROKER, header, body)


async def unregister(client: RemotingClient, **changes: Any) -> None:
    """Ends a broker's registration."""
    fields = {
        "broker_name": NAME,
        "broker_addr": ADDRESS,
        "cluster_name": CLUSTER,
        "broker_id": 0,
    }
    answer = await client.ask(RequestCode.UNREGISTER_BROKER, BrokerRequest(**{**fields, **changes}))
    assert answer.code == ResponseCode.SUCCESS


async def route(client: RemotingClient, topic: str) -> TopicRouteData | None:
    """Returns a topic's route; None if there is none."""
    answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(TopicRouteData, answer.body)


async def addresses(client: RemotingClient, topic: str) -> dict[str, dict[int, str]]:
    """Returns a topic's addresses by broker name and id."""
    found = await route(client, topic)
    return (
        {} if found is None else {one.broker_name: one.broker_addrs for one in found.broker_datas}
    )

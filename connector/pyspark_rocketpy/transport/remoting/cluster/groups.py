"""Requests to brokers about groups and their filters.

Source: docs/design/remoting.md sections 2.8 and 4.4, docs/design/cluster.md section 2.6.
"""

from __future__ import annotations

import uuid

from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import Call, Request
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from pyspark_rocketpy.transport.remoting.net.responses import nothing
from rocketpy_proto.model import SQL92
from rocketpy_proto.model.consumers import ConsumeType
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode, encode_body
from rocketpy_proto.remoting.bodies.clients import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from rocketpy_proto.remoting.headers.clients import UnregisterClientRequest

_PARSE_FAILED = frozenset({ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_PARSE_FAILED})


def make_group(cluster: Cluster, topic: str, broker_name: str, group: str) -> None:
    """Creates a group and its retry topic at a topic's master, by joining and leaving at once.

    Nothing happens at a broker that does not create groups. Raises ConnectionFailedError,
    BrokerError.
    """
    client_id = f"rocketpy@{uuid.uuid4().hex}"
    joining = HeartbeatData(
        client_id, consumers=(ConsumerData(group, ConsumeType.CONSUME_ACTIVELY),)
    )
    heartbeat = Request(RequestCode.HEART_BEAT, nothing, body=encode_body(joining))
    leaving = Request(
        RequestCode.UNREGISTER_CLIENT,
        nothing,
        UnregisterClientRequest(client_id, consumer_group=group),
    )
    try:
        cluster.ask_owner(topic, broker_name, heartbeat).answer()
    finally:
        cluster.ask_owner(topic, broker_name, leaving).answer()


def check_expression(cluster: Cluster, peer: Peer, group: str, expression: str) -> Call[str | None]:
    """Returns a broker's check of an SQL92 expression: the fault found, or None.

    The call's answer raises BrokerError of code 1 if the broker does not filter by properties.
    """
    checked = CheckClientRequestBody(
        "rocketpy", group, SubscriptionData(group, expression, expression_type=SQL92)
    )
    request = Request(
        RequestCode.CHECK_CLIENT_CONFIG,
        _fault,
        body=encode_body(checked),
        accepted=_PARSE_FAILED,
    )
    return cluster.ask(peer, request)


def _fault(_peer: Peer, answer: RemotingCommand) -> str | None:
    if answer.code == ResponseCode.SUCCESS:
        return None
    # A remark has a Java exception's name, the parser's message, and lines with all known tokens.
    reason = (answer.remark or "it cannot be parsed").partition("\n")[0]
    return reason.rpartition("Exception: ")[2]

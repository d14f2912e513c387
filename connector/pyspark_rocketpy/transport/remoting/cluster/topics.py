"""Requests to brokers about topics and about themselves.

Source: docs/design/remoting.md section 2.8, docs/design/cluster.md section 5.
"""

from __future__ import annotations

from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import JSON_BODY_BYTES_MAX, Call, Request
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from pyspark_rocketpy.transport.remoting.net.responses import json_reader
from rocketpy_proto.remoting import RemotingCommand, RequestCode
from rocketpy_proto.remoting.bodies.configs import TopicConfig
from rocketpy_proto.remoting.bodies.routes import TextTable
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.topics import TopicRequest


def topic_config(cluster: Cluster, topic: str, broker_name: str) -> Call[TopicConfig]:
    """Returns a topic's configuration at one broker. 4.9 does not know this request: code 3."""
    request = Request(
        RequestCode.GET_TOPIC_CONFIG,
        json_reader(TopicConfig),
        TopicRequest(topic, broker_name=broker_name),
        body_bytes_max=JSON_BODY_BYTES_MAX,
    )
    return cluster.ask_owner(topic, broker_name, request)


def broker_version(cluster: Cluster, topic: str, broker_name: str) -> Call[int]:
    """Returns the number of a master's RocketMQ version, 413 for 5.0.0, which every answer has.

    The request is for a queue's end: a client with permission to write a topic may make it.
    """
    header = GetMaxOffsetRequest(topic, 0, broker_name=broker_name)
    request = Request(RequestCode.GET_MAX_OFFSET, _version, header)
    return cluster.ask_owner(topic, broker_name, request)


def _version(_peer: Peer, answer: RemotingCommand) -> int:
    return answer.version


def broker_info(cluster: Cluster, peer: Peer) -> Call[TextTable]:
    """Returns a broker's figures about itself, by name: version, log offsets, disk, load."""
    request = Request(
        RequestCode.GET_BROKER_RUNTIME_INFO,
        json_reader(TextTable),
        body_bytes_max=JSON_BODY_BYTES_MAX,
    )
    return cluster.ask(peer, request)

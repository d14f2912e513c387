"""Requests of RocketMQ's tools that several modules of this folder make."""

from __future__ import annotations

from typing import Any

from rocketpy_broker.services.groups.clients.consumers import ConsumerData
from rocketpy_broker.services.groups.clients.registry import Heartbeat
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.offsets.service import CommittedOffset
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.remoting import RESPONSE_BODIES, Header, RemotingCommand, decode_body
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient


async def answered(
    client: RemotingClient, code: Code, header: Header | None = None, body: bytes = b""
) -> Any:
    """Returns the body of a successful answer as a value; None without a body."""
    answer = await client.ask(code, header, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(RESPONSE_BODIES[code], answer.body) if answer.body else None


async def update_topic(client: RemotingClient, **fields: Any) -> RemotingCommand:
    """Returns the answer to a creation or change of a topic with four queues."""
    usual: dict[str, Any] = {"topic": "T", "read_queue_nums": 4, "write_queue_nums": 4}
    return await client.ask(Code.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest(**usual | fields))


async def subscribe(remoting: RemotingBroker, group: str, topic: str, tags: str = "*") -> None:
    """Registers a member of a group."""
    subscription = Subscription(topic, "TAG", tags, 7)
    data = ConsumerData(
        *(
            group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ),
        [subscription],
    )
    clients = remoting.running.broker.services.groups.clients
    await clients.heartbeat(Heartbeat(f"client-of-{group}", "127.0.0.1:1", [], [data]))


async def commit(
    remoting: RemotingBroker, group: str, topic: str, offset: int, queue_id: int = 0
) -> None:
    """Commits an offset for a group."""
    offsets = remoting.running.broker.services.offsets.offsets
    await offsets.commit(group, [CommittedOffset(QueueKey(topic, queue_id), offset)])

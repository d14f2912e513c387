"""Bodies about clients: heartbeats, group members, locks.

Source: docs/design/remoting.md sections 2.8, 4.4 and 4.5.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import field

from rocketpy_proto.model import EVERYTHING, TAG
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel, NamedEnum
from rocketpy_proto.remoting.errors import RemotingFormatError
from rocketpy_proto.remoting.fields import MessageQueue, QueueTable
from rocketpy_proto.struct_types import Body, Int32, Int64

N = TypeVar("N", bound=NamedEnum)


def named(kind: type[N], value: N | int) -> N:
    """Returns the member with this name or number. Raises RemotingFormatError.

    Clients for C++ send the number.
    """
    if not isinstance(value, int):
        return value
    names = list(kind)
    if not 0 <= value < len(names):
        raise RemotingFormatError(kind.__name__, f"{value} is not from 0 to {len(names) - 1}")
    return names[value]


class SubscriptionData(Body, frozen=True):
    """A group's subscription to a topic. `code_set` has the tag hashes that brokers filter by."""

    topic: str
    sub_string: str = EVERYTHING
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int32, ...] = ()
    sub_version_ms: Int64 = field(name="subVersion", default=0)
    expression_type: str = TAG
    is_class_filter: bool = field(name="classFilterMode", default=False)
    filter_class_source: str | None = None


class ConsumerData(Body, frozen=True):
    """A group that the client consumes for; `named` returns the member for a number."""

    group_name: str
    consume_type: ConsumeType | Int32 = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel | Int32 = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere | Int32 = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[SubscriptionData, ...] = field(name="subscriptionDataSet", default=())
    is_unit_mode: bool = field(name="unitMode", default=False)


class ProducerData(Body, frozen=True):
    """A group that the client sends for."""

    group_name: str


class HeartbeatData(Body, frozen=True):
    """HEART_BEAT. A fingerprint other than 0 marks version 2 of heartbeats, which 4.9 lacks."""

    client_id: str = field(name="clientID")
    producers: tuple[ProducerData, ...] = field(name="producerDataSet", default=())
    consumers: tuple[ConsumerData, ...] = field(name="consumerDataSet", default=())
    heartbeat_fingerprint: Int32 = 0
    is_without_subscriptions: bool = field(name="withoutSub", default=False)


class CheckClientRequestBody(Body, frozen=True):
    """CHECK_CLIENT_CONFIG: asks if the broker can filter by this expression."""

    client_id: str
    group: str
    subscription: SubscriptionData = field(name="subscriptionData")
    namespace: str | None = None


class ConsumerListBody(Body, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_ids: tuple[str, ...] = field(name="consumerIdList", default=())


class Connection(Body, frozen=True):
    """One client. `language` is a name of codes.Language, or a newer one."""

    client_id: str
    client_addr: str
    language: str
    version: Int32


class ConsumerConnection(Body, frozen=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    connections: tuple[Connection, ...] = field(name="connectionSet", default=())
    subscriptions: dict[str, SubscriptionData] = field(
        name="subscriptionTable", default_factory=dict
    )
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    connections: tuple[Connection, ...] = field(name="connectionSet", default=())


class QuerySubscriptionBody(Body, frozen=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)


class ConsumerStatusBody(Body, frozen=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT: next offsets, from a broker for each client id."""

    offsets: QueueTable[Int64] = field(name="messageQueueTable", default=QueueTable({}))
    by_client: dict[str, QueueTable[Int64]] = field(name="consumerTable", default_factory=dict)


class ConsumeMessageDirectlyResult(Body, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY: the result of the client's listener, such as CR_SUCCESS."""

    consume_result: str | None = None
    is_ordered: bool = field(name="order", default=False)
    is_auto_commit: bool = field(name="autoCommit", default=True)
    remark: str | None = None
    spent_ms: Int64 = field(name="spentTimeMills", default=0)


# Properties of a consumer that RocketMQ's tools read.
CONSUME_TYPE, CONSUMER_START_TIME = "PROP_CONSUME_TYPE", "PROP_CONSUMER_START_TIMESTAMP"


class ConsumerRunningInfo(Body, frozen=True):
    """GET_CONSUMER_RUNNING_INFO: the fields of an SDK; tools take missing ones as empty."""

    properties: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class LockBatchRequestBody(Body, frozen=True):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ. A client id holds a lock for 60 s."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = field(name="mqSet", default=())
    is_this_broker_only: bool = field(name="onlyThisBroker", default=False)


class LockBatchResponseBody(Body, frozen=True):
    """LOCK_BATCH_MQ: the queues that the client now holds."""

    locked: tuple[MessageQueue, ...] = field(name="lockOKMQSet", default=())

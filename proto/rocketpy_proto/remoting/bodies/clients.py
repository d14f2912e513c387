"""What clients tell of themselves, and what is told of them: heartbeats, members, locks. No state.

Source: docs/design/remoting.md sections 2.8, 4.4 and 4.5.
"""

from __future__ import annotations

from enum import Enum

from msgspec import field

from rocketpy_proto.remoting.fields import Body, Int32, Int64, MessageQueue


class _Name(Enum):
    """Names that Java reads in any case."""

    @classmethod
    def _missing_(cls, value: object) -> _Name | None:
        return cls.__members__.get(str(value).upper())


class ConsumeType(_Name):
    """Who moves: the broker's messages (push), or the client (pull and lite pull)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(_Name):
    """Whether each message goes to one member of a group, or to all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(_Name):
    """Where a group begins that has committed nothing; the last three are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


class SubscriptionData(Body, frozen=True):
    """What a group wants of a topic. `code_set` has the tags' hashes, by which brokers filter."""

    topic: str
    sub_string: str = "*"
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int32, ...] = ()
    sub_version_ms: Int64 = field(name="subVersion", default=0)
    expression_type: str = "TAG"
    is_class_filter: bool = field(name="classFilterMode", default=False)
    filter_class_source: str | None = None


class ConsumerData(Body, frozen=True):
    """A group that the client consumes for."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[SubscriptionData, ...] = field(name="subscriptionDataSet", default=())
    is_unit_mode: bool = field(name="unitMode", default=False)


class ProducerData(Body, frozen=True):
    """A group that the client sends for."""

    group_name: str


class HeartbeatData(Body, frozen=True):
    """HEART_BEAT. A fingerprint that is not 0 is the second version's; 4.9 does not know it."""

    client_id: str = field(name="clientID")
    producers: tuple[ProducerData, ...] = field(name="producerDataSet", default=())
    consumers: tuple[ConsumerData, ...] = field(name="consumerDataSet", default=())
    heartbeat_fingerprint: Int32 = 0
    is_without_subscriptions: bool = field(name="withoutSub", default=False)


class CheckClientRequestBody(Body, frozen=True):
    """CHECK_CLIENT_CONFIG: whether a broker can filter by this expression."""

    client_id: str
    group: str
    subscription: SubscriptionData = field(name="subscriptionData")
    namespace: str | None = None


class ConsumerListBody(Body, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_ids: tuple[str, ...] = field(name="consumerIdList", default=())


class Connection(Body, frozen=True):
    """One client. `language` is a name of codes.Language, or one that is newer."""

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


class LockBatchRequestBody(Body, frozen=True):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ. A lock lasts 60 s, and is the client id's."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = field(name="mqSet", default=())
    is_this_broker_only: bool = field(name="onlyThisBroker", default=False)


class LockBatchResponseBody(Body, frozen=True):
    """LOCK_BATCH_MQ: the queues that are the client's now."""

    locked: tuple[MessageQueue, ...] = field(name="lockOKMQSet", default=())


class MessageQueueAssignment(Body, frozen=True):
    """A queue for a client, and how it is to be read: PULL or POP."""

    message_queue: MessageQueue
    mode: str
    attachments: dict[str, str] | None = None


class QueryAssignmentRequestBody(Body, frozen=True):
    """QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class QueryAssignmentResponseBody(Body, frozen=True):
    """QUERY_ASSIGNMENT."""

    assignments: tuple[MessageQueueAssignment, ...] = field(
        name="messageQueueAssignments", default=()
    )

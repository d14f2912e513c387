"""Statistics and offset tables of queues and groups.

Source: docs/design/remoting.md section 4.6, docs/design/cluster.md section 2.6.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.model.configs import DataVersion
from rocketpy_proto.remoting.bodies.clients import SubscriptionData
from rocketpy_proto.remoting.fields import MessageQueue, QueueTable
from rocketpy_proto.struct_types import Body, Int32, Int64


class TopicOffset(Body, frozen=True):
    """A queue's range: [min, max). The time is 0 if the range is empty."""

    min_offset: Int64
    max_offset: Int64
    last_update_ms: Int64 = field(name="lastUpdateTimestamp", default=0)


class TopicStatsTable(Body, frozen=True):
    """GET_TOPIC_STATS_INFO."""

    offset_table: QueueTable[TopicOffset] = QueueTable({})
    topic_put_tps: float | None = None


class OffsetWrapper(Body, frozen=True):
    """A group's position in a queue; `consumer_offset` is 0 also if none is committed."""

    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 | None = None
    # Store time of the last consumed message.
    last_ms: Int64 = field(name="lastTimestamp", default=0)


class ConsumeStats(Body, frozen=True):
    """GET_CONSUME_STATS."""

    offset_table: QueueTable[OffsetWrapper] = QueueTable({})
    consume_tps: float = 0.0


class ConsumeStatsList(Body, frozen=True):
    """GET_BROKER_CONSUME_STATS: the topics of each group; the totals are messages."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QueueTimeSpan(Body, frozen=True):
    """Store times of a queue's first, last and last consumed message, and the group's delay."""

    message_queue: MessageQueue
    min_ms: Int64 = field(name="minTimeStamp")
    max_ms: Int64 = field(name="maxTimeStamp")
    consume_ms: Int64 = field(name="consumeTimeStamp")
    delay_ms: Int64 = field(name="delayTime")


class QueryConsumeTimeSpanBody(Body, frozen=True):
    """QUERY_CONSUME_TIME_SPAN."""

    spans: tuple[QueueTimeSpan, ...] = field(name="consumeTimeSpanSet", default=())


class ConsumeQueueData(Body, frozen=True):
    """A unit of a consume queue; `msg` explains a message that does not pass the filter."""

    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64
    is_matched: bool = field(name="eval", default=False)
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, frozen=True):
    """QUERY_CONSUME_QUEUE, with the subscription of the group that was asked for."""

    min_queue_index: Int64
    max_queue_index: Int64
    units: tuple[ConsumeQueueData, ...] = field(name="queueData", default=())
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)


class BrokerStatsItem(Body, frozen=True):
    """One of RocketMQ's statistics over a time: the sum, per second, and per addition."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class ResetOffsetBody(Body, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET: the group's next offset in each queue."""

    offset_table: QueueTable[Int64] = QueueTable({})


class ConsumerOffsets(Body, frozen=True):
    """GET_ALL_CONSUMER_OFFSET: by `topic@group`, then by queue."""

    offset_table: dict[str, dict[Int32, Int64]] = field(default_factory=dict)
    data_version: DataVersion | None = None
    group_topic_map: dict[str, tuple[str, ...]] | None = None


class DelayOffsets(Body, frozen=True):
    """GET_ALL_DELAY_OFFSET: by delay level."""

    offset_table: dict[Int32, Int64] = field(default_factory=dict)
    data_version: DataVersion | None = None


class HAConnection(Body, frozen=True):
    """One slave, as its master reports it."""

    addr: str
    slave_ack_offset: Int64
    diff: Int64
    is_in_sync: bool = field(name="inSync")
    transferred_bytes_per_second: Int64 = field(name="transferredByteInSecond", default=0)
    transfer_from_where: Int64 = 0


class HAClientInfo(Body, frozen=True):
    """A slave, as it reports itself; a master has zeros."""

    master_addr: str | None = None
    transferred_bytes_per_second: Int64 = field(name="transferredByteInSecond", default=0)
    max_offset: Int64 = 0
    last_read_ms: Int64 = field(name="lastReadTimestamp", default=0)
    last_write_ms: Int64 = field(name="lastWriteTimestamp", default=0)
    master_flush_offset: Int64 = 0


class HARuntimeInfo(Body, frozen=True):
    """GET_BROKER_HA_STATUS."""

    is_master: bool = field(name="master")
    master_commit_log_max_offset: Int64 = 0
    in_sync_slaves: Int32 = field(name="inSyncSlaveNums", default=0)
    connections: tuple[HAConnection, ...] = field(name="haConnectionInfo", default=())
    client: HAClientInfo | None = field(name="haClientRuntimeInfo", default=None)

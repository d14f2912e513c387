"""Headers about groups and their clients.

Source: docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32


class HeartbeatResponse(Header, frozen=True):
    """HEART_BEAT. 4.9 answers without fields."""

    is_v2_supported: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_subscription_changed: bool | None = field(name="IS_SUB_CHANGE", default=None)


class UnregisterClientRequest(Header, frozen=True):
    """UNREGISTER_CLIENT: one group per request."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class ConsumerGroupRequest(Header, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP, NOTIFY_CONSUMER_IDS_CHANGED, GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str
    broker_name: str | None = field(name="bname", default=None)


class ProducerGroupRequest(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str
    broker_name: str | None = field(name="bname", default=None)


class GroupRequest(Header, frozen=True):
    """QUERY_TOPICS_BY_CONSUMER, GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str
    broker_name: str | None = field(name="bname", default=None)


class GroupTopicRequest(Header, frozen=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class DeleteGroupRequest(Header, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    is_offset_cleaned: bool | None = field(name="cleanOffset", default=None)
    broker_name: str | None = field(name="bname", default=None)


class ConsumeStatsRequest(Header, frozen=True):
    """GET_CONSUME_STATS. No topic means all that the group has committed or subscribes."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class ConsumerStatusRequest(Header, frozen=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GET_CONSUMER_STATUS_FROM_CLIENT.

    No client id in `client_addr` means all clients of the group.
    """

    topic: str
    group: str
    client_addr: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class ConsumeMessageDirectlyRequest(Header, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY, which a broker forwards to the client with the message.

    `msg_id` is an offset message id. The broker sets `consumed_broker_name`.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    consumed_broker_name: str | None = field(name="brokerName", default=None)
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)


class ConsumeTimeSpanRequest(Header, frozen=True):
    """QUERY_CONSUME_TIME_SPAN."""

    group: str
    topic: str
    broker_name: str | None = field(name="bname", default=None)


class BrokerConsumeStatsRequest(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS of all groups, or of ordered topics only."""

    is_order: bool = False


class GetConsumerRunningInfoRequest(Header, frozen=True):
    """GET_CONSUMER_RUNNING_INFO, which a broker forwards to the client."""

    consumer_group: str
    client_id: str
    is_stack_wanted: bool | None = field(name="jstackEnable", default=None)
    broker_name: str | None = field(name="bname", default=None)

"""Headers about topics and routes.

Source: docs/design/remoting.md sections 2.7 and 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.model import AUTO_CREATE_TOPIC
from rocketpy_proto.model.configs import READ_WRITE, SINGLE_TAG
from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64


class GetRouteInfoRequest(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC. Name servers before 4.9.4 cannot write standard JSON."""

    topic: str
    is_standard_json_only: bool | None = field(name="acceptStandardJsonOnly", default=None)


class TopicRequest(Header, frozen=True):
    """Queries about a topic, and DELETE_TOPIC_IN_BROKER."""

    topic: str
    is_logical: bool | None = field(name="lo", default=None)
    broker_name: str | None = field(name="bname", default=None)


class CreateTopicRequest(Header, frozen=True):
    """UPDATE_AND_CREATE_TOPIC. `attributes` has the form `+key=value,-key`."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    default_topic: str = AUTO_CREATE_TOPIC
    perm: Int32 = int(READ_WRITE)
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    is_forced: bool | None = field(name="force", default=None)
    broker_name: str | None = field(name="bname", default=None)


class QueryConsumeQueueRequest(Header, frozen=True):
    """QUERY_CONSUME_QUEUE: units of a queue, and the group whose filter they are checked with."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32 = 10
    consumer_group: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class DeleteTopicInNamesrvRequest(Header, frozen=True):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequest(Header, frozen=True):
    """REGISTER_TOPIC_IN_NAMESRV; the body is a TopicRouteData."""

    topic: str


class TopicsByClusterRequest(Header, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str

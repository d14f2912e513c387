"""Routes of topics, and the brokers of a cluster.

Source: docs/design/remoting.md sections 4.2 and 4.3, docs/design/cluster.md section 3.3.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from rocketpy_proto.remoting.fields import encode_body
from rocketpy_proto.struct_types import Body, Int32, Int64


class BrokerData(Body, frozen=True):
    """The addresses of one broker name, by broker id; id 0 is the master's."""

    broker_name: str
    broker_addrs: dict[Int64, str] = field(default_factory=dict)
    cluster: str | None = None
    is_acting_master_enabled: bool = field(name="enableActingMaster", default=False)
    zone_name: str | None = None


class QueueData(Body, frozen=True):
    """The number of a topic's queues at a broker, and their permissions (`model.configs`)."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class TopicRouteData(Body, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC. A broker of `queue_datas` may be missing in `broker_datas`."""

    broker_datas: tuple[BrokerData, ...] = ()
    queue_datas: tuple[QueueData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Like `broker-a:4;broker-b:2`.
    order_topic_conf: str | None = None
    # Of static topics; kept as received.
    topic_queue_mapping_by_broker: dict[str, object] | None = None


class ClusterInfo(Body, frozen=True):
    """GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = field(default_factory=dict)


class BrokerMemberGroup(Body, frozen=True):
    """The brokers of one name."""

    broker_name: str
    cluster: str
    broker_addrs: dict[Int64, str] = field(default_factory=dict)


class BrokerMemberGroupBody(Body, frozen=True):
    """GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup


def encode_with_number_keys(body: TopicRouteData | ClusterInfo | BrokerMemberGroupBody) -> bytes:
    """Returns fastjson's form, in which the keys of `brokerAddrs` are numbers without quotes.

    Clients before 4.9.4 expect it. Raises UnencodableRemotingError.
    """
    values = msgspec.json.decode(encode_body(body))
    places = [*values.get("brokerDatas", ()), *values.get("brokerAddrTable", {}).values()]
    for place in (*places, *filter(None, [values.get("brokerMemberGroup")])):
        entries = (
            b"%s:%s" % (number.encode(), msgspec.json.encode(address))
            for number, address in place.get("brokerAddrs", {}).items()
        )
        place["brokerAddrs"] = msgspec.Raw(b"{%s}" % b",".join(entries))
    return msgspec.json.encode(values)


class TopicList(Body, frozen=True):
    """Names of topics, for the requests 206, 224, 304, 305 and 343."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class GroupList(Body, frozen=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: tuple[str, ...] = ()


class TextTable(Body, frozen=True):
    """GET_BROKER_RUNTIME_INFO and GET_KVLIST_BY_NAMESPACE: all values are texts."""

    table: dict[str, str] = field(default_factory=dict)

"""Name servers' answers about topics and brokers, as our codec reads them."""

from __future__ import annotations

import pytest

from rocketpy_proto.remoting import RequestCode, ResponseCode, Serialization
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData
from rocketpy_proto.remoting.headers.cluster import BrokerMemberGroupRequest
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest, TopicsByClusterRequest
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection, ask
from tests.interop.cluster.servers import CLUSTER, MASTER_ID, SLAVE_ID

TOPIC = "everywhere"
QUEUES = 3
# The last version to which a name server writes numbers as keys.
OLD_CLIENT = 399


@pytest.fixture(scope="module", autouse=True)
def _topic(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, QUEUES)


@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize("version", [OLD_CLIENT, 473])
def test_a_route_has_each_masters_queues_and_each_brokers_address(
    cluster: Cluster, version: int, serialization: Serialization
) -> None:
    for server in cluster.name_servers:
        with Connection(server.address, version=version, serialization=serialization) as connection:
            answer = connection.ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=TOPIC)
            ).ok()
        assert answer.command.serialization is Serialization.JSON
        is_standard = b'"brokerAddrs":{"0":' in bytes(answer.command.body)
        assert is_standard is (version != OLD_CLIENT)
        route = answer.content
        queues = {QueueData(name, QUEUES, QUEUES, 6) for name in (A, B, OLD)}
        assert set(route.queue_datas) == queues
        expected = {
            A: {number: cluster.broker(A, number).address for number in (MASTER_ID, SLAVE_ID)},
            B: {MASTER_ID: cluster.broker(B).address},
            OLD: {MASTER_ID: cluster.broker(OLD).address},
        }
        assert {data.broker_name: data.broker_addrs for data in route.broker_datas} == expected
        assert {data.cluster for data in route.broker_datas} == {CLUSTER}


def test_a_topic_that_no_broker_has_has_no_route(cluster: Cluster) -> None:
    header = GetRouteInfoRequest(topic="nowhere", is_standard_json_only=True)
    answer = ask(cluster.name_servers[0].address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "nowhere" in answer.remark


def test_the_cluster_is_told_in_keys_that_are_numbers(cluster: Cluster) -> None:
    answer = ask(cluster.name_servers[0].address, RequestCode.GET_BROKER_CLUSTER_INFO).ok()
    assert b'"brokerAddrs":{0:' in bytes(answer.command.body)
    info = answer.content
    assert {name: set(names) for name, names in info.cluster_addr_table.items()} == {
        CLUSTER: {A, B, OLD}
    }
    master = cluster.broker(OLD).address
    assert info.broker_addr_table[OLD] == BrokerData(OLD, {MASTER_ID: master}, CLUSTER)


def test_topics_are_listed_whole_and_by_cluster(cluster: Cluster) -> None:
    address = cluster.name_servers[1].address
    every = ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).ok().content
    header = TopicsByClusterRequest(cluster=CLUSTER)
    of_cluster = ask(address, RequestCode.GET_TOPICS_BY_CLUSTER, header).ok().content
    of_system = ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).ok().content
    assert {TOPIC, "TBW102"} <= set(every.topic_list)
    assert TOPIC in of_cluster.topic_list
    assert TOPIC not in of_system.topic_list
    assert {CLUSTER, A, B, OLD} <= set(of_system.topic_list)


def test_the_members_of_a_broker_name_are_told(cluster: Cluster) -> None:
    header = BrokerMemberGroupRequest(cluster_name=CLUSTER, broker_name=A)
    answer = ask(cluster.name_servers[0].address, RequestCode.GET_BROKER_MEMBER_GROUP, header)
    group = answer.ok().content.broker_member_group
    assert set(group.broker_addrs) == {MASTER_ID, SLAVE_ID}


def test_a_brokers_request_is_not_answered_by_a_name_server(cluster: Cluster) -> None:
    answer = ask(cluster.name_servers[0].address, RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

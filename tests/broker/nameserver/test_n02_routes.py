"""Routes, lists of topics, permissions, and the configuration of ordered topics."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import RemotingCommand, decode_body, encode_body
from rocketpy_proto.remoting.bodies.routes import (
    QueueData,
    TextTable,
    TopicList,
    TopicRouteData,
)
from rocketpy_proto.remoting.headers.cluster import (
    BrokerMemberGroupRequest,
    BrokerNameRequest,
    KVConfigRequest,
    KVNamespaceRequest,
    PutKVConfigRequest,
)
from rocketpy_proto.remoting.headers.topics import (
    DeleteTopicInNamesrvRequest,
    GetRouteInfoRequest,
    RegisterTopicRequest,
    TopicsByClusterRequest,
)
from tests.broker.nameserver.registrations import ADDRESS, CLUSTER, NAME, addresses, register, route
from tests.broker.nameserver.registrations import table as topics_of
from tests.support.broker.clients.remoting_client import (
    RemotingClient,
    RunningNameServer,
    StartNameServer,
)

OTHER, OTHER_ADDRESS = "broker-b", "10.0.0.3:10911"


async def topics(answer: RemotingCommand) -> set[str]:
    return set(decode_body(TopicList, answer.body).topic_list)


async def two_brokers(client: RemotingClient) -> None:
    await register(client, topics_of("T", "U"))
    await register(
        client,
        topics_of("T", "V"),
        broker_name=OTHER,
        broker_addr=OTHER_ADDRESS,
        cluster_name="D",
    )


async def test_n02_a_route_has_the_queues_of_each_broker(name_server: RunningNameServer) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        expected = {NAME: {0: ADDRESS}, OTHER: {0: OTHER_ADDRESS}}
        assert await addresses(client, "T") == expected
        answer = await client.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest("nowhere")
        )
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark is not None
        assert "nowhere" in answer.remark


@pytest.mark.parametrize(
    ("version", "is_only", "key"), [(399, None, b"0"), (399, True, b'"0"'), (401, None, b'"0"')]
)
async def test_n02_old_clients_get_numbers_as_keys(
    name_server: RunningNameServer, version: int, is_only: bool | None, key: bytes
) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        header = GetRouteInfoRequest("T", is_only)
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version)
        assert b'"brokerAddrs":{%s:' % key in bytes(answer.body)
        assert len(decode_body(TopicRouteData, answer.body).broker_datas) == 2


async def test_n02_clusters_and_members_have_numbers_as_keys(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        cluster = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert bytes(cluster.body).count(b'"brokerAddrs":{0:') == 2
        header = BrokerMemberGroupRequest(CLUSTER, NAME)
        members = await client.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        assert b'"brokerAddrs":{0:"%s"}' % ADDRESS.encode() in bytes(members.body)


async def test_n02_topics_are_listed_for_all_and_by_cluster(name_server: RunningNameServer) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        every = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert await topics(every) == {"T", "U", "V"}
        header = TopicsByClusterRequest("D")
        of_cluster = await client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        assert await topics(of_cluster) == {"T", "V"}
        system = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert await topics(system) == {CLUSTER, NAME, "D", OTHER}


async def test_n02_a_topic_is_deleted_in_one_cluster_or_in_all(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        await client.ask(code, DeleteTopicInNamesrvRequest("T", "D"))
        assert await addresses(client, "T") == {NAME: {0: ADDRESS}}
        await client.ask(code, DeleteTopicInNamesrvRequest("T"))
        assert await route(client, "T") is None
        await register(client, topics_of("T", "U", counter=2))
        assert await addresses(client, "T") == {NAME: {0: ADDRESS}}


async def test_n02_a_topic_is_registered_at_known_brokers(name_server: RunningNameServer) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        queues = (QueueData(NAME, 2, 2, 6), QueueData("broker-x", 2, 2, 6))
        body = encode_body(TopicRouteData(queue_datas=queues))
        code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
        assert (await client.ask(code, RegisterTopicRequest("W"), body)).code == 0
        assert await addresses(client, "W") == {NAME: {0: ADDRESS}}


async def test_n02_the_write_permission_of_a_broker_is_taken_and_given(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        await two_brokers(client)
        header = BrokerNameRequest(NAME)
        for code, field, perm in (
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", 4),
            (RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", 6),
        ):
            answer = await client.ask(code, header)
            assert answer.ext_fields == {field: "2"}
            found = await route(client, "T")
            assert found is not None
            perms = {each.broker_name: each.perm for each in found.queue_datas}
            assert perms == {NAME: perm, OTHER: 6}


@pytest.mark.parametrize(("counter", "perm"), [(1, 4), (2, 6)])
async def test_n02_only_changed_topics_give_the_write_permission_back(
    name_server: RunningNameServer, counter: int, perm: int
) -> None:
    async with name_server.client() as client:
        await register(client, topics_of("T", "U", counter=1))
        await client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequest(NAME))
        await register(client, topics_of("T", "U", counter=counter))
        found = await route(client, "T")
        assert found is not None
        assert [each.perm for each in found.queue_datas] == [perm]


@pytest.mark.parametrize("is_served", [False, True])
async def test_n02_ordered_topics_are_configured_and_kept(
    start_name_server: StartNameServer, is_served: bool
) -> None:
    namespace, value = "ORDER_TOPIC_CONFIG", "broker-a:4;broker-b:2"
    async with start_name_server() as running, running.client() as client:
        put = PutKVConfigRequest(namespace, "T", value)
        assert (await client.ask(RequestCode.PUT_KV_CONFIG, put)).code == 0
        await client.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequest(namespace, "U", "x"))
        gone = KVConfigRequest(namespace, "U")
        assert (await client.ask(RequestCode.DELETE_KV_CONFIG, gone)).code == 0
        missing = await client.ask(RequestCode.GET_KV_CONFIG, gone)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
    async with (
        start_name_server(order_message_enable=is_served) as running,
        running.client() as client,
    ):
        got = await client.ask(RequestCode.GET_KV_CONFIG, KVConfigRequest(namespace, "T"))
        assert got.ext_fields == {"value": value}
        listed = await client.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, KVNamespaceRequest(namespace)
        )
        assert decode_body(TextTable, listed.body).table == {"T": value}
        answer = await register(client, topics_of("T", "U"))
        assert decode_body(TextTable, answer.body).table == {"T": value}
        found = await route(client, "T")
        assert found is not None
        assert found.order_topic_conf == (value if is_served else None)

"""A broker is registered at its name servers with all its topics, from its start to its stop."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.remoting import RemotingCommand, encode_frame
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.nameserver.registrations import addresses, route
from tests.broker.registration.recorder import Recorder, success
from tests.support.broker.clients.remoting_client import (
    RemotingBroker,
    RemotingClient,
    RunningNameServer,
    StartNameServer,
    connected,
)
from tests.support.broker.running_broker import StartBroker, until

REGISTER, QUERY, UNREGISTER = "REGISTER_BROKER", "QUERY_DATA_VERSION", "UNREGISTER_BROKER"


async def routed(name_server: RunningNameServer, topic: str) -> dict[str, dict[int, str]]:
    async with name_server.client() as client:
        return await addresses(client, topic)


async def registered(name_server: RunningNameServer, count: int = 1) -> None:
    """Waits until this number of brokers has registered all topics."""
    routes = name_server.server.routes
    await until(
        lambda: [len(each.topics) > 0 for each in routes._brokers.values()] == [True] * count
    )


async def test_n01_a_broker_registers_all_topics_at_each_name_server(
    start_broker: StartBroker, start_name_server: StartNameServer
) -> None:
    async with start_name_server() as first, start_name_server() as second:
        addresses_of = (f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}")
        async with start_broker(remoting_port=0, name_servers=addresses_of) as running:
            await registered(first)
            await registered(second)
            expected = {"broker-a": {0: f"127.0.0.1:{running.ready.remoting_port}"}}
            for server in (first, second):
                names = running.broker.services.topics.names(include_system=True)
                assert sorted(server.server.routes.topics) == [*names]
                assert await routed(server, "TBW102") == expected
                assert await routed(server, "rmq_sys_rocketpy_batches") == {}
        # A clean stop ends the registration.
        assert await routed(first, "TBW102") == await routed(second, "TBW102") == {}


async def test_n01_a_topic_is_registered_before_its_creation_is_answered(
    start_broker: StartBroker, name_server: RunningNameServer
) -> None:
    config = {"remoting_port": 0, "name_servers": (f"127.0.0.1:{name_server.port}",)}
    async with start_broker(**config) as running, name_server.client() as client:
        await registered(name_server)
        for number in range(20):
            assert await running.create_topic(f"T{number}", 3) == 0
            found = await route(client, f"T{number}")
            assert found is not None
            assert [each.write_queue_nums for each in found.queue_datas] == [3]
        change = admin_pb2.TopicConfig(topic="T0", read_queue_nums=5, write_queue_nums=6, perm=4)
        await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=change))
        found = await route(client, "T0")
        assert found is not None
        [queues] = found.queue_datas
        assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (5, 6, 4)


async def test_a_changed_permission_of_the_broker_is_registered(
    start_broker: StartBroker, name_server: RunningNameServer
) -> None:
    config = {"remoting_port": 0, "name_server_port": 0}
    others = (f"127.0.0.1:{name_server.port}",)
    async with (
        start_broker(**config, name_servers=others) as running,
        name_server.client() as other,
        connected(running.ready.name_server_port or 0) as own,
        RemotingBroker.of(running) as remoting,
    ):
        await registered(name_server)
        assert await running.create_topic("T", 3) == 0

        async def perms(client: RemotingClient) -> list[int]:
            found = [await route(client, topic) for topic in ("T", "TBW102")]
            return [each.queue_datas[0].perm for each in found if each is not None]

        for permission, expected in ((4, [4, 5]), (6, [6, 7])):
            body = f"brokerPermission={permission}\n".encode()
            answer = await remoting.client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code == 0, answer.remark
            assert await perms(own) == expected
            while await perms(other) != expected:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0)


async def test_the_form_of_a_registration_is_that_of_rocketmq(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    recorder = record_name_server
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        port = running.ready.remoting_port
        assert port is not None
        fields = dict(recorder.requests[0].ext_fields)
        assert int(fields.pop("bodyCrc32")) > 0
        assert fields == {
            "brokerName": "broker-a",
            "brokerAddr": f"127.0.0.1:{port}",
            "clusterName": "DefaultCluster",
            "brokerId": "0",
            "haServerAddr": f"127.0.0.1:{port + 1}",
            "compressed": "false",
            "enableActingMaster": "false",
        }
        body = msgspec.json.decode(recorder.requests[0].body)
        assert body.pop("filterServerList") == []
        wrapper = body.pop("topicConfigSerializeWrapper")
        assert body == {}
        assert wrapper.pop("topicConfigTable")["TBW102"] == {
            "attributes": {},
            "order": False,
            "perm": 7,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "TBW102",
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        version = wrapper.pop("dataVersion")
        assert version.keys() == {"counter", "stateVersion", "timestamp"}
        assert wrapper == {
            "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }


async def test_a_broker_without_permission_or_creation_of_topics_says_so(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    options = SystemTopicOptions(auto_create_topic_enable=False)
    async with start_broker(
        remoting_port=0,
        name_servers=(record_name_server.address,),
        broker_permission=4,
        system_topics=options,
    ):
        await record_name_server.asked(1)
        topics = record_name_server.topics(0).topic_configs
        assert "TBW102" not in topics
        assert topics["BenchmarkTest"].perm == 4
        assert topics["broker-a"].perm == 5


async def test_unchanged_topics_are_not_sent_again(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    recorder = record_name_server
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        assert await running.create_topic("T") == 0
        assert recorder.codes == [REGISTER, REGISTER]
        assert [*recorder.topics(1).topic_configs] == ["T"]
        for count in (3, 4):
            running.clock.advance(30_000)
            await recorder.asked(count)
        assert recorder.codes[2:] == [QUERY, QUERY]
        assert recorder.topics(1).data_version is not None
    assert recorder.codes[4:] == [UNREGISTER]
    assert recorder.header(4).broker_addr == recorder.header(0).broker_addr


async def test_topics_that_the_name_server_lacks_are_sent_again(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    recorder = record_name_server

    def changed(command: RemotingCommand) -> bytes:
        return b"".join(encode_frame(command.answer(0, ext_fields={"changed": "true"})))

    def unknown(command: RemotingCommand) -> bytes:
        return b"".join(encode_frame(command.answer(3, remark="request type not supported")))

    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        for number, answer in enumerate((changed, unknown)):
            recorder.answer = lambda command, answer=answer: (  # type: ignore[misc]
                answer(command) if command.code == 322 else success(command)
            )
            running.clock.advance(30_000)
            await recorder.asked(3 + 2 * number)
        recorder.answer = success
    assert recorder.codes == [REGISTER, QUERY, REGISTER, QUERY, REGISTER, UNREGISTER]
    for number in (2, 4):
        assert recorder.topics(number).topic_configs == recorder.topics(0).topic_configs


async def test_changes_during_a_request_share_the_next_one(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    recorder = record_name_server
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        topics = running.broker.services.topics
        # One save of the table for each: their answers need the name server's.
        await asyncio.gather(*(topics.create(TopicConfig(f"T{n}")) for n in range(50)))
        sent = [recorder.topics(n).topic_configs for n in range(1, len(recorder.requests))]
        assert {name for each in sent for name in each} == {f"T{n}" for n in range(50)}
        assert len(sent) <= 3
        await topics.delete("T0")
        last = recorder.topics(len(recorder.requests) - 1)
        assert last.topic_configs == {}
        assert last.data_version is not None
        assert last.data_version.counter == topics.version.counter


async def test_many_topics_are_sent_in_parts_of_which_a_name_server_takes_each(
    start_broker: StartBroker, name_server: RunningNameServer, record_name_server: Recorder
) -> None:
    recorder = record_name_server
    servers = (f"127.0.0.1:{name_server.port}", recorder.address)
    async with start_broker(remoting_port=0, name_servers=servers) as running:
        await recorder.asked(1)
        topics = running.broker.services.topics
        names = [f"T{number}" for number in range(10_100)]
        topics._table.note({name: TopicEntry(TopicConfig(name)) for name in names})
        recorder.requests.clear()
        recorder.answer = lambda command: (
            b"".join(encode_frame(command.answer(3))) if command.code == 322 else success(command)
        )
        running.clock.advance(30_000)
        await recorder.asked(3)
        assert recorder.codes == [QUERY, REGISTER, REGISTER]
        parts = [recorder.topics(number) for number in (1, 2)]
        assert len(parts[0].topic_configs) == 10_000
        assert {name for part in parts for name in part.topic_configs} == {*topics.copy()}
        counters = [part.data_version.counter for part in parts if part.data_version]
        last = topics.version.counter
        assert counters == [last - 1, last]
        await until(lambda: len(name_server.server.routes.topics) == len(topics))


@pytest.mark.parametrize("word", ["advertise_host", "both"])
async def test_an_advertised_address_is_registered(
    start_broker: StartBroker, record_name_server: Recorder, word: str
) -> None:
    more = {"advertise_port": 20911} if word == "both" else {}
    async with start_broker(
        remoting_port=0,
        name_servers=(record_name_server.address,),
        advertise_host="10.1.2.3",
        **more,
    ) as running:
        await record_name_server.asked(1)
        port = more.get("advertise_port", running.ready.remoting_port)
        assert record_name_server.header(0).broker_addr == f"10.1.2.3:{port}"
        assert str(running.broker.store.store_host) == f"10.1.2.3:{port}"


async def test_a_broker_on_all_addresses_registers_the_one_that_reaches_the_name_server(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    async with start_broker(
        remoting_port=0,
        name_servers=(record_name_server.address,),
        host="0.0.0.0",
        insecure=True,
    ) as running:
        await record_name_server.asked(1)
        registered_as = record_name_server.header(0).broker_addr
        assert registered_as == f"127.0.0.1:{running.ready.remoting_port}"

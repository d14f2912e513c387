"""Topics, offsets, health and reflection through real gRPC."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.calls.guard import call_guard
from rocketpy_broker.server.grpc.server import GrpcServer
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.broker.running_broker import RunningBroker, StartBroker, until


async def commit(running: RunningBroker, group: str, *offsets: tuple[str, int, int]) -> int:
    """Commits (topic, queue id, offset); returns the response code."""
    entries = [
        broker_pb2.CommittedOffset(topic=topic, queue_id=queue_id, offset=offset)
        for topic, queue_id, offset in offsets
    ]
    request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=entries)
    response: broker_pb2.CommitOffsetsResponse = await running.data.CommitOffsets(request)
    return response.status.code


async def committed(running: RunningBroker, group: str, topic: str) -> list[int]:
    """Returns the committed offset of every queue."""
    request = broker_pb2.QueryOffsetsRequest(topics=[topic], consumer_group=group)
    response = await running.data.QueryOffsets(request)
    return [queue.committed_offset for queue in response.topics[0].queues]


async def test_n03_topics_survive_a_restart(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        assert await running.create_topic("T", queues=3) == ResponseCode.SUCCESS
    async with start_broker() as running:
        response = await running.admin.ListTopics(admin_pb2.ListTopicsRequest())
        [config] = response.configs
        assert (config.topic, config.read_queue_nums, config.write_queue_nums) == ("T", 3, 3)


async def test_b02_system_topics_exist_at_first_start(running: RunningBroker) -> None:
    request = admin_pb2.ListTopicsRequest(include_system=True)
    names = {config.topic for config in (await running.admin.ListTopics(request)).configs}
    assert {
        "SELF_TEST_TOPIC",
        "TBW102",
        "BenchmarkTest",
        "DefaultCluster",
        "broker-a",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    } <= names


@pytest.mark.parametrize("topic", ["", "a b", "../x", "ä", "x" * 128, "TBW102", "DefaultCluster"])
async def test_n03_illegal_and_reserved_names_are_refused(
    topic: str, running: RunningBroker
) -> None:
    assert await running.create_topic(topic) == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("queues", [0, -1, 65_537])
async def test_a_topic_needs_a_possible_number_of_queues(
    queues: int, running: RunningBroker
) -> None:
    assert await running.create_topic("T", queues) == ResponseCode.INVALID_PARAMETER


async def test_n03_a_topic_is_created_once(running: RunningBroker) -> None:
    await running.create_topic("T", queues=4)
    assert await running.create_topic("T", queues=4) == ResponseCode.TOPIC_EXIST_ALREADY


async def test_a_deleted_topic_takes_its_messages_and_progress_along(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"old")
    await commit(running, "g", ("T", 0, 1))
    response = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert response.status.code == ResponseCode.SUCCESS
    assert (await running.append("T", 0, b"x")).status.code == ResponseCode.TOPIC_NOT_EXIST
    await running.create_topic("T", queues=1)
    [pulled] = await running.pull(topic="T", queue_id=0)
    assert pulled.status.code == ResponseCode.PULL_NOT_FOUND
    assert await committed(running, "g", "T") == [-1]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("Unknown", ResponseCode.TOPIC_NOT_EXIST),
        ("TBW102", ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_cannot_be_deleted_is_refused(
    topic: str, code: ResponseCode, running: RunningBroker
) -> None:
    request = admin_pb2.DeleteTopicRequest(topic=topic)
    assert (await running.admin.DeleteTopic(request)).status.code == code


async def test_c10_b05_committed_offsets_survive_a_clean_stop(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T", queues=2)
        for queue_id in range(2):
            await running.append("T", queue_id, *[b"x"] * 9)
        assert await commit(running, "g", ("T", 0, 7), ("T", 1, 9)) == ResponseCode.SUCCESS
    async with start_broker() as running:
        assert await committed(running, "g", "T") == [7, 9]
        assert await committed(running, "other", "T") == [-1, -1]


async def test_b05_committed_offsets_are_saved_by_interval(
    tmp_path: Path, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=1)
    await commit(running, "g", ("T", 0, 7))
    path = tmp_path / "config" / "consumerOffset.json"
    assert not path.exists()
    running.clock.advance(5_000)
    await until(path.exists)
    assert json.loads(path.read_text())["offsetTable"] == {"T@g": {"0": 7}}


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [("g", "Unknown", 0, 1), ("g", "T", 5, 1), ("g", "T", 0, -1), ("bad group", "T", 0, 1)],
)
async def test_a_commit_with_one_wrong_entry_changes_nothing(
    group: str, topic: str, queue_id: int, offset: int, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=2)
    code = await commit(running, group, ("T", 1, 3), (topic, queue_id, offset))
    assert code != ResponseCode.SUCCESS
    assert await committed(running, "g", "T") == [-1, -1]


async def test_c11_offsets_of_several_topics_come_in_one_call(running: RunningBroker) -> None:
    await running.create_topic("A", queues=2)
    await running.create_topic("B", queues=1)
    await running.append("A", 1, b"x", b"y")
    request = broker_pb2.QueryOffsetsRequest(topics=["B", "None", "A"])
    response = await running.data.QueryOffsets(request)
    assert [topic.topic for topic in response.topics] == ["B", "None", "A"]
    codes = [topic.status.code for topic in response.topics]
    assert codes == [0, ResponseCode.TOPIC_NOT_EXIST, 0]
    assert [queue.max_offset for queue in response.topics[2].queues] == [0, 2]


async def test_health_and_reflection_answer(running: RunningBroker) -> None:
    health = health_pb2_grpc.HealthStub(running.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(service="rocketpy.v1.Broker"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    call = reflection.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    )
    names = {service.name for service in (await call.read()).list_services_response.service}
    assert {"rocketpy.v1.Broker", "rocketpy.v1.Admin", "grpc.health.v1.Health"} <= names


async def test_health_is_good_when_the_broker_listens_at_all_its_ports(tmp_path: Path) -> None:
    """Covers the first port, which is open before the other ports."""
    clock, states = ManualClock(), health_pb2.HealthCheckResponse
    config = BrokerConfig(tmp_path, port=0)
    server = GrpcServer(config, [], clock, call_guard(clock, None), None)
    async with TaskScope() as scope:
        port = await server.start(scope)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for status in (states.NOT_SERVING, states.SERVING):
                answer = await health.Check(health_pb2.HealthCheckRequest())
                assert answer.status == status
                await server.serving()
        await server.stop()


async def test_the_broker_tells_its_limits(running: RunningBroker) -> None:
    info = await running.admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())
    assert (info.broker_name, info.cluster_name) == ("broker-a", "DefaultCluster")
    assert (info.body_bytes_max, info.flush_disk_type) == (4 << 20, "ASYNC_FLUSH")
    assert info.commit_log_segment_bytes == 1 << 20
    assert info.version


async def test_b03_a_broken_config_file_is_answered_by_its_backup(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("First")
        await running.create_topic("Second")
    (tmp_path / "config" / "topics.json").write_text('{"torn')
    async with start_broker() as running:
        response = await running.admin.ListTopics(admin_pb2.ListTopicsRequest())
        assert [config.topic for config in response.configs] == ["First"]


async def test_a_config_file_without_a_good_backup_stops_the_start(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"torn')
    with pytest.raises(ConfigFileError, match=r"topics\.json"):
        async with start_broker():
            pass
    assert (tmp_path / "config" / "topics.json").read_text() == '{"torn'


async def test_a_topic_whose_mark_cannot_be_saved_keeps_its_messages(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"kept")
    obstacle = running.broker.store.config.folder / "config" / "deletedTopics.json.tmp"
    obstacle.mkdir()
    request = admin_pb2.DeleteTopicRequest(topic="T")
    answer = await running.admin.DeleteTopic(request)
    assert answer.status.code == ResponseCode.SYSTEM_ERROR
    [pulled] = await running.pull(topic="T", queue_id=0)
    assert (pulled.next_offset, b"kept" in pulled.records) == (1, True)
    obstacle.rmdir()
    answer = await running.admin.DeleteTopic(request)
    assert answer.status.code == ResponseCode.SUCCESS

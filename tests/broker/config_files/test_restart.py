"""Configuration of a RocketMQ store through a whole broker: start, work, stop, crash, restart."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.errors import ConfigFileError, StoreDirectoryError
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.blocks import wire_block
from tests.support.broker import rocketmq_files
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.time_limits import WAIT_SECONDS_MAX


def write_config(data: Path) -> Path:
    """Writes what RocketMQ 5.3 left below `config/`; returns that folder."""
    folder = data / "config"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "topics.json": rocketmq_files.TOPICS,
        "consumerOffset.json": rocketmq_files.CONSUMER_OFFSETS,
        "delayOffset.json": rocketmq_files.DELAY_OFFSETS,
        "subscriptionGroup.json": rocketmq_files.GROUPS,
        **rocketmq_files.FOREIGN,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def saved(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


async def commit(running: RunningBroker, group: str, topic: str, offset: int) -> int:
    """Commits for queue 0; returns the response code."""
    entry = broker_pb2.CommittedOffset(topic=topic, queue_id=0, offset=offset)
    request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=[entry])
    response: broker_pb2.CommitOffsetsResponse = await running.data.CommitOffsets(request)
    return response.status.code


async def test_b01_files_without_a_manager_are_left_untouched(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = write_config(tmp_path)
    before = {name: (folder / name).stat().st_mtime_ns for name in rocketmq_files.FOREIGN}
    async with start_broker() as running:
        await running.create_topic("T", queues=1)
        running.clock.advance(20_000)
    for name, text in rocketmq_files.FOREIGN.items():
        assert (folder / name).read_text() == text
        assert (folder / name).stat().st_mtime_ns == before[name]


async def test_b05_a_failed_save_is_made_up_for_at_the_next_interval(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    obstacle = path.with_name(path.name + ".tmp")
    async with start_broker() as running:
        await running.create_topic("T", queues=1)
        assert await commit(running, "g", "T", 7) == 0
        obstacle.mkdir()
        running.clock.advance(5_000)
        await until(lambda: "ConsumerOffsetManager could not be saved" in caplog.text)
        await commit(running, "g", "T", 8)
        assert not path.exists()
        obstacle.rmdir()

        def is_saved() -> bool:
            running.clock.advance(5_000)
            return path.exists()

        await until(is_saved)
        assert saved(path)["offsetTable"] == {"T@g": {"0": 8}}


async def test_c01_the_first_commit_makes_the_group(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = write_config(tmp_path)
    async with start_broker() as running:
        assert await commit(running, "g1", "TopicA", 7) == 0
        assert saved(folder / "subscriptionGroup.json")["dataVersion"]["counter"] == 3
        assert await commit(running, "new-group", "TopicA", 7) == 0
        table = saved(folder / "subscriptionGroup.json")["subscriptionGroupTable"]
        assert table["new-group"]["retryMaxTimes"] == 16
        assert table["g1"]["retryMaxTimes"] == 3


async def test_g01_the_first_commit_makes_the_groups_retry_topic(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = write_config(tmp_path)
    async with start_broker() as running:
        assert await commit(running, "new-group", "TopicA", 7) == 0
        topics = saved(folder / "topics.json")["topicConfigTable"]
        entry = topics["%RETRY%new-group"]
        assert (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"]) == (1, 1, 6)
        assert entry["order"] is False
        before = (folder / "topics.json").stat().st_ino
        assert await commit(running, "new-group", "TopicA", 8) == 0
        assert (folder / "topics.json").stat().st_ino == before


async def test_g01_a_group_that_has_no_retry_topic_yet_gets_it_with_its_next_commit(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = write_config(tmp_path)
    assert "%RETRY%g1" not in rocketmq_files.TOPICS
    assert '"g1"' in rocketmq_files.GROUPS
    async with start_broker() as running:
        assert await commit(running, "g1", "TopicA", 7) == 0
        assert "%RETRY%g1" in saved(folder / "topics.json")["topicConfigTable"]


async def test_g01_a_full_disk_keeps_no_commit_from_being_taken(
    tmp_path: Path, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=1)
    obstacle = tmp_path / "config" / "topics.json.tmp"
    obstacle.mkdir()
    assert await commit(running, "g", "T", 7) == 0
    obstacle.rmdir()
    assert await commit(running, "g", "T", 8) == 0
    assert "%RETRY%g" in saved(tmp_path / "config" / "topics.json")["topicConfigTable"]


async def test_c01_a_refused_commit_makes_no_group(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        assert await commit(running, "g", "Unknown", 7) != 0
    assert not (tmp_path / "config" / "subscriptionGroup.json").exists()


async def test_a_clean_stop_leaves_a_timercheck_behind(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        now_ms = running.clock.now_ms()
    content = (tmp_path / "config" / "timercheck").read_bytes()
    assert struct.unpack_from(">4q", content) == (now_ms, 0, 0, 0)


async def test_a_timercheck_of_a_wrong_size_stops_the_start(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    path = write_config(tmp_path) / "timercheck"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(StoreDirectoryError, match="timercheck"):
        async with start_broker():
            pytest.fail("it served")
    assert path.stat().st_size == 100


@pytest.mark.parametrize(
    "name", ["topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"]
)
async def test_b03_each_table_stops_the_start_where_it_is_broken_and_has_no_backup(
    start_broker: StartBroker, tmp_path: Path, name: str
) -> None:
    folder = write_config(tmp_path)
    text = (folder / name).read_text()[:-2]
    (folder / name).write_text(text)
    with pytest.raises(ConfigFileError, match=name):
        async with start_broker():
            pass
    assert (folder / name).read_text() == text


def fill_topic(broker: LocalBroker) -> None:
    """Creates TopicA with four queues; appends 300 messages to each."""
    broker.create_topic("TopicA", queues=4)
    block = wire_block("TopicA", [b"message"] * 300)
    requests = [
        broker_pb2.AppendRequest(
            topic="TopicA", queue_id=i, records=block.records, record_sizes=block.record_sizes
        )
        for i in range(4)
    ]
    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(iter(requests)):
            assert response.status.code == 0


def test_b01_b03_b05_a_store_of_rocketmq_goes_on_over_stop_crash_and_torn_files(
    tmp_path: Path,
) -> None:
    def query(broker: LocalBroker) -> list[int]:
        request = broker_pb2.QueryOffsetsRequest(topics=["TopicA"], consumer_group="g1")
        with grpc.insecure_channel(broker.endpoint) as channel:
            response = broker_pb2_grpc.BrokerStub(channel).QueryOffsets(
                request, timeout=WAIT_SECONDS_MAX
            )
        return [queue.committed_offset for queue in response.topics[0].queues]

    def commit_one(broker: LocalBroker, offset: int) -> None:
        entry = broker_pb2.CommittedOffset(topic="TopicA", queue_id=3, offset=offset)
        request = broker_pb2.CommitOffsetsRequest(consumer_group="g1", offsets=[entry])
        with grpc.insecure_channel(broker.endpoint) as channel:
            broker_pb2_grpc.BrokerStub(channel).CommitOffsets(request, timeout=WAIT_SECONDS_MAX)

    with LocalBroker(tmp_path) as broker:
        fill_topic(broker)
    folder = write_config(tmp_path)
    # The third is beyond its queue.
    expected = [250, 251, 300, -1, -1, -1, -1, -1]
    with LocalBroker(tmp_path) as broker:
        assert query(broker) == expected
        commit_one(broker, 5)
        broker.stop()
        assert saved(folder / "delayOffset.json")["offsetTable"] == {"1": 0, "3": 0}
        broker.start()
        assert query(broker) == [*expected[:3], 5, *expected[4:]]
        broker.kill()
        for name in ("consumerOffset.json", "topics.json"):
            path = folder / name
            path.with_name(name + ".bak").write_bytes(path.read_bytes())
            path.write_bytes(path.read_bytes()[:40])
        broker.start()
        assert query(broker) == [*expected[:3], 5, *expected[4:]]
        assert "consumerOffset.json.broken" in broker.log_text()
        assert (folder / "topics.json.broken").stat().st_size == 40

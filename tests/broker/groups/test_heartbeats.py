"""Heartbeats through real gRPC: who joins, what is created, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.groups.clients import (
    connections,
    consumer,
    heartbeat,
    members,
    subscription,
    subscriptions,
)


def topic_entry(folder: Path, topic: str) -> dict[str, Any] | None:
    """What topics.json says of a topic."""
    table = json.loads((folder / "config" / "topics.json").read_text())["topicConfigTable"]
    entry: dict[str, Any] | None = table.get(topic)
    return entry


def groups_file(folder: Path) -> Path:
    return folder / "config" / "subscriptionGroup.json"


async def test_g01_a_heartbeat_registers_consumers_and_producers(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        data = consumer(
            "g",
            subscription("T", 7, "a || b"),
            consume_type=groups_pb2.CONSUME_ACTIVELY,
            message_model=groups_pb2.BROADCASTING,
            consume_from_where=groups_pb2.CONSUME_FROM_TIMESTAMP,
            unit_mode=True,
        )
        data.subscriptions[0].expression_type = "TAG"
        assert (await heartbeat(running, "c1", data, producers=["g", "p"])).code == 0
        found = await connections(running, "g")
        assert found.consumer_data == data
        now_ms = running.clock.now_ms()
        [consuming], [producing] = found.consumers, found.producers
        assert consuming == producing
        assert (consuming.client_id, consuming.last_update_ms) == ("c1", now_ms)
        assert consuming.address.startswith("127.0.0.1:")
        assert [each.client_id for each in (await connections(running, "p")).producers] == ["c1"]


async def test_g01_the_first_heartbeat_makes_the_group_and_its_retry_topic_on_disk(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
        table = json.loads(groups_file(tmp_path).read_text())["subscriptionGroupTable"]
        assert table["g"]["retryQueueNums"] == 1
        entry = topic_entry(tmp_path, "%RETRY%g")
    assert entry == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "%RETRY%g",
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }


async def test_g01_heartbeats_that_bring_nothing_new_write_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("g", "T"))
        files = [groups_file(tmp_path), tmp_path / "config" / "topics.json"]
        before = [path.stat().st_ino for path in files]
        await heartbeat(running, "c1", consumer("g", "T", "U"))
        await heartbeat(running, "c2", consumer("g", "T"))
        assert [path.stat().st_ino for path in files] == before


async def test_g01_producers_make_neither_group_nor_topic(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        assert (await heartbeat(running, "c1", producers=["p"])).code == 0
        assert not groups_file(tmp_path).exists()
        assert topic_entry(tmp_path, "%RETRY%p") is None


@pytest.mark.parametrize("nums", [0, 3])
async def test_g01_the_retry_topic_has_as_many_queues_as_the_group_says(
    start_broker: StartBroker, tmp_path: Path, nums: int
) -> None:
    async with start_broker() as running:
        configs = running.broker.rooms.groups.configs
        await configs.update(SubscriptionGroupConfig("g", retry_queue_nums=nums))
        await heartbeat(running, "c1", consumer("g"))
        entry = topic_entry(tmp_path, "%RETRY%g")
        assert entry is not None
        assert (entry["readQueueNums"], entry["writeQueueNums"]) == (nums, nums)
    async with start_broker() as running:
        assert running.broker.rooms.topics.get("%RETRY%g").read_queue_nums == nums


async def test_g01_the_retry_topic_is_ordered_as_long_as_a_subscribed_topic_is(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.broker.rooms.topics.update(TopicConfig("O", order=True), create_only=True)
        await heartbeat(running, "c1", consumer("g", "T", "O"))
        first = topic_entry(tmp_path, "%RETRY%g")
        await heartbeat(running, "c1", consumer("g", "T"))
        second = topic_entry(tmp_path, "%RETRY%g")
    assert first is not None
    assert first["order"] is True
    assert second == {**first, "order": False}


async def test_g01_a_retry_topic_that_is_there_keeps_all_but_its_order(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        topics = running.broker.rooms.topics
        made = TopicConfig("%RETRY%g", 5, 4, 4, {"a": "b"}, order=True, extra={"x": 1})
        await topics.update(made, create_only=True)
        await heartbeat(running, "c1", consumer("g", "T", unit_mode=True))
        entry = topic_entry(tmp_path, "%RETRY%g")
    assert entry == {**made.to_json(), "order": False}


async def test_g01_unit_mode_marks_a_new_retry_topic(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("g", "T", unit_mode=True))
        entry = topic_entry(tmp_path, "%RETRY%g")
        assert entry is not None
        assert entry["topicSysFlag"] == 2


async def test_g01_many_groups_of_one_heartbeat_are_one_save(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        data = [consumer(f"g{number}", "T") for number in range(100)]
        assert (await heartbeat(running, "c1", *data)).code == 0
        topics = json.loads((tmp_path / "config" / "topics.json").read_text())
        assert sum(name.startswith("%RETRY%g") for name in topics["topicConfigTable"]) == 100
        backup = json.loads((tmp_path / "config" / "topics.json.bak").read_text())
        assert not any(name.startswith("%RETRY%") for name in backup["topicConfigTable"])


async def test_g01_a_full_disk_keeps_no_client_out_and_the_next_heartbeat_makes_the_topic(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        obstacle = tmp_path / "config" / "topics.json.tmp"
        obstacle.mkdir()
        assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
        assert await members(running, "g") == ["c1"]
        assert "retry topics could not be made yet" in caplog.text
        assert "%RETRY%g" not in running.broker.rooms.topics
        obstacle.rmdir()
        await heartbeat(running, "c1", consumer("g", "T"))
        assert topic_entry(tmp_path, "%RETRY%g") is not None


async def test_g01_retry_topics_are_listed_with_the_brokers_own(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await heartbeat(running, "c1", consumer("g", "T"))

        async def listed(*, system: bool) -> set[str]:
            request = admin_pb2.ListTopicsRequest(include_system=system)
            return {each.topic for each in (await running.admin.ListTopics(request)).configs}

        assert await listed(system=False) == {"T"}
        assert {"T", "%RETRY%g", "TBW102"} <= await listed(system=True)


async def test_g01_the_group_consumes_as_its_latest_heartbeat_says(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("g", "T"))
        await heartbeat(
            running,
            "c2",
            consumer(
                "g",
                "T",
                consume_type=groups_pb2.CONSUME_POP,
                consume_from_where=groups_pb2.CONSUME_FROM_FIRST_OFFSET,
            ),
        )
        data = (await connections(running, "g")).consumer_data
        assert data.consume_type == groups_pb2.CONSUME_POP
        assert data.consume_from_where == groups_pb2.CONSUME_FROM_FIRST_OFFSET


async def test_g01_an_empty_expression_is_every_message(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("g", subscription("T", 3, "")))
        assert await subscriptions(running, "g") == {"T": (3, "*")}


def sql(text: str) -> groups_pb2.Subscription:
    return groups_pb2.Subscription(topic="T", expression_type="SQL92", expression=text)


async def test_g01_a_condition_of_sql_is_kept_as_it_is(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        assert (await heartbeat(running, "c1", consumer("g", sql("a > 1")))).code == 0
        assert await subscriptions(running, "g") == {"T": (0, "a > 1")}


BAD_HEARTBEATS = [
    pytest.param("", [consumer("g")], [], "client_id is ''", id="no client id"),
    pytest.param("c" * 256, [consumer("g")], [], "accepted is 1 to 255 bytes", id="long id"),
    pytest.param("ä" * 128, [consumer("g")], [], "accepted is 1 to 255 bytes", id="wide id"),
    pytest.param("c\n1", [consumer("g")], [], r"client_id is 'c\n1'", id="control character"),
    pytest.param("c", [], [], "number of groups is 0", id="no groups"),
    pytest.param("c", [], ["p"] * 101, "number of groups is 101", id="many groups"),
    pytest.param("c", [consumer("")], [], "consumer_group is ''", id="no group name"),
    pytest.param("c", [consumer("a b")], [], "consumer_group is 'a b'", id="group name"),
    pytest.param("c", [consumer("g" * 121)], [], "1 to 120 of the", id="long group name"),
    pytest.param("c", [consumer("g")], ["a b"], "producer_group is 'a b'", id="producer name"),
    pytest.param("c", [consumer("g")], ["p" * 121], "1 to 120 of the", id="long producer name"),
    pytest.param("c", [consumer("g"), consumer("g")], [], "group is 'g'", id="group twice"),
    pytest.param("c", [consumer("g")], ["p", "p"], "group is 'p'", id="producer twice"),
    pytest.param("c", [consumer("g", "T", "T")], [], "each topic once", id="topic twice"),
    pytest.param("c", [consumer("g", "a b")], [], "topic is 'a b'", id="topic name"),
    pytest.param("c", [consumer("g", "")], [], "topic is ''", id="no topic name"),
    pytest.param("c", [consumer("g", "T" * 128)], [], "1 to 127 of the", id="long topic"),
    pytest.param(
        "c", [consumer("g", consume_type=0)], [], "consume_type is 0", id="no consume type"
    ),
    pytest.param("c", [consumer("g", consume_type=9)], [], "consume_type is 9", id="consume type"),
    pytest.param(
        "c", [consumer("g", message_model=0)], [], "message_model is 0", id="no message model"
    ),
    pytest.param(
        "c",
        [consumer("g", consume_from_where=0)],
        [],
        "consume_from_where is 0, accepted is LAST_OFFSET (1)",
        id="no from where",
    ),
    pytest.param(
        "c",
        [consumer("g", groups_pb2.Subscription(topic="T", expression_type="XPATH"))],
        [],
        "expression_type is 'XPATH', accepted is TAG or SQL92",
        id="expression type",
    ),
    pytest.param("c", [consumer("g", sql(""))], [], "a condition of SQL92", id="no condition"),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, " || "))],
        [],
        "expression is ' || '",
        id="separators only",
    ),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, "a" * 16_385))],
        [],
        "bytes of an expression is 16385",
        id="long expression",
    ),
    pytest.param(
        "c",
        [consumer("g", *(f"T{number}" for number in range(1_001)))],
        [],
        "number of subscriptions is 1001",
        id="many subscriptions",
    ),
    pytest.param(
        "c",
        [consumer(f"g{group}", *(f"T{each}" for each in range(667))) for group in range(3)],
        [],
        "number of subscriptions is 2001, accepted is 2000 or fewer in one heartbeat",
        id="many in all",
    ),
    pytest.param(
        "c",
        [consumer("g", subscription("T", 1, "a" * (1 << 20)))],
        [],
        "bytes of the request is 10",
        id="large request",
    ),
]


@pytest.mark.parametrize(("client_id", "consumers", "producers", "said"), BAD_HEARTBEATS)
async def test_g01_a_heartbeat_that_is_wrong_in_one_thing_does_nothing(
    start_broker: StartBroker,
    tmp_path: Path,
    client_id: str,
    consumers: list[Any],
    producers: list[str],
    said: str,
) -> None:
    async with start_broker() as running:
        if len(consumers) == 1:
            consumers = [consumer("good", "T"), *consumers]
        status = await heartbeat(running, client_id, *consumers, producers=producers)
        assert status.code == ResponseCode.INVALID_PARAMETER
        assert said in status.remark
        assert len(status.remark) < 1_000
        assert await members(running, "good") == []
    assert not groups_file(tmp_path).exists()


async def refused(running: RunningBroker, client_id: str, *consumers: Any, said: str) -> None:
    status = await heartbeat(running, client_id, *consumers)
    assert status.code == ResponseCode.SYSTEM_BUSY
    assert said in status.remark


def limits(**fields: int) -> Limits:
    return Limits(clients=ClientLimits(**fields))


async def test_g01_only_so_many_clients_are_taken(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(clients_max=2)) as running:
        await heartbeat(running, "c1", consumer("g"))
        await heartbeat(running, "c2", producers=["p"])
        await refused(running, "c3", consumer("h"), said="number of clients would be more than 2")
        assert "h" not in running.broker.rooms.groups.configs
        assert (await heartbeat(running, "c1", consumer("h"))).code == 0


async def test_g01_only_so_many_registrations_are_taken(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(registrations_max=3)) as running:
        await heartbeat(running, "c1", consumer("g"), consumer("h"))
        await refused(
            running, "c2", consumer("g"), consumer("h"), said="registrations would be more than 3"
        )
        assert await members(running, "g") == ["c1"]
        assert (await heartbeat(running, "c1", consumer("g"), consumer("h"))).code == 0
        assert (await heartbeat(running, "c2", consumer("g"))).code == 0


async def test_g01_only_so_many_clients_are_in_one_group(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(members_per_group_max=2)) as running:
        for client_id in ("c1", "c2", "c1"):
            assert (await heartbeat(running, client_id, consumer("g"))).code == 0
        said = "number of clients of consumer group 'g' would be more than 2"
        await refused(running, "c3", consumer("g"), said=said)
        assert (await heartbeat(running, "c3", producers=["g"])).code == 0


async def test_g01_subscriptions_take_only_so_much_memory(start_broker: StartBroker) -> None:
    async with start_broker(limits=limits(subscription_bytes_max=2_000)) as running:
        large = subscription("T", 1, "a" * 1_000)
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        said = "bytes of all subscriptions would be more than 2000"
        await refused(running, "c2", consumer("h", large), said=said)
        assert (await heartbeat(running, "c1", consumer("g", large))).code == 0
        assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
        assert await subscriptions(running, "g") == {"T": (1, "a" * 1_000)}
        assert (await heartbeat(running, "c1", consumer("g"))).code == 0
        assert (await heartbeat(running, "c2", consumer("h", large))).code == 0


async def test_g01_without_auto_creation_an_unknown_group_refuses_the_whole_heartbeat(
    start_broker: StartBroker,
) -> None:
    async with start_broker(auto_create_subscription_group=False) as running:
        await running.broker.rooms.groups.configs.update(SubscriptionGroupConfig("known"))
        status = await heartbeat(running, "c1", consumer("known"), consumer("g"))
        assert status.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "consumer group 'g' does not exist" in status.remark
        assert await members(running, "known") == []
        assert (await heartbeat(running, "c1", consumer("known"))).code == 0
        assert await members(running, "known") == ["c1"]

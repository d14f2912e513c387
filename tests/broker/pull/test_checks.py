"""The checks of a group's pull, in RocketMQ's order, through real gRPC."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, groups_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.clients.group_clients import (
    consumer,
    heartbeat,
    sql,
    subscription,
    unregister,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker

# Each of them fails a check of its own; together, in the order of the checks.
FAULTS: dict[str, tuple[ResponseCode, str]] = {
    "broker": (ResponseCode.NO_PERMISSION, "the broker[broker-a] pulling message is forbidden"),
    "group": (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "consumer group 'new' does not exist"),
    "disabled": (ResponseCode.NO_PERMISSION, "subscription group no permission, off"),
    "topic": (ResponseCode.TOPIC_NOT_EXIST, "'Unknown'"),
    "readable": (ResponseCode.NO_PERMISSION, "topic 'W' is not readable (perm 2)"),
    "queue": (ResponseCode.INVALID_PARAMETER, "queue id 9 of topic 'T'"),
    "filter": (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "subscription failed: SQL92"),
    "offset": (ResponseCode.INVALID_PARAMETER, "offset is -1"),
    "commit": (ResponseCode.INVALID_PARAMETER, "offset is -7"),
}


async def pulled(running: RunningBroker, **fields: Any) -> broker_pb2.PullResponse:
    """Returns the last answer to a pull, by default of queue 0 of topic T by group g."""
    responses = await running.pull(**{"topic": "T", "consumer_group": "g", **fields})
    return responses[-1]


def bodies(response: broker_pb2.PullResponse) -> list[bytes]:
    return bodies_of(response.records, response.record_sizes)


async def append_tagged(running: RunningBroker, **tags: str) -> None:
    """Appends messages to queue 0 of topic T: a tag for each body."""
    for body, tag in tags.items():
        await running.append_block("T", 0, wire_block("T", [body.encode()], tags=tag))


async def change_group(running: RunningBroker, group: str, **fields: Any) -> None:
    configs = running.broker.services.groups.configs
    await configs.update(structs.replace(configs.get_or_create(group), **fields))


async def refused(
    running: RunningBroker, code: ResponseCode, words: str, **fields: Any
) -> broker_pb2.PullResponse:
    """Asserts that a pull is answered with this code and remark only; returns the answer."""
    [response] = await running.pull(**{"topic": "T", "consumer_group": "g", **fields})
    assert response.status.code == code, response.status
    assert words in response.status.remark
    assert not response.records
    return response


FIELDS: dict[str, dict[str, Any]] = {
    "group": {"consumer_group": "new"},
    "disabled": {"consumer_group": "off"},
    "topic": {"topic": "Unknown"},
    "readable": {"topic": "W"},
    "queue": {"queue_id": 9},
    "filter": {"expression_type": "SQL92", "expression": "a = "},
    "offset": {"offset": -1},
    "commit": {"commit_offset": -7},
}


def faulty(faults: list[str]) -> dict[str, Any]:
    """Returns the fields of a pull with these faults."""
    fields: dict[str, Any] = {"topic": "T", "consumer_group": "g"}
    for fault in reversed(faults):
        fields |= FIELDS.get(fault, {})
    return fields


async def with_faults(start_broker: StartBroker) -> None:
    """Leaves a broker's directory in which all of the faults can be met."""
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("W")
        topics = running.broker.services.topics
        await topics.update(structs.replace(topics.get("W"), perm=2), create_only=False)
        await change_group(running, "g")
        await change_group(running, "off", consume_enable=False)


async def test_a_hidden_queue_is_read_by_those_that_name_an_end_and_by_no_group(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 2)
    await running.append_block("T", 1, wire_block("T", [b"a", b"b"]))
    topics = running.broker.services.topics
    await topics.update(structs.replace(topics.get("T"), read_queue_nums=1), create_only=False)
    plain: dict[str, Any] = {"queue_id": 1, "consumer_group": ""}
    response = await pulled(running, **plain, offset_end=2)
    assert bodies(response) == [b"a", b"b"]
    illegal = ResponseCode.INVALID_PARAMETER, "queue id 1 of topic 'T'"
    await refused(running, *illegal, **plain)
    await refused(running, *illegal, **plain, offset=2, offset_end=3)
    await refused(running, *illegal, queue_id=1, offset_end=2)
    await refused(running, ResponseCode.INVALID_PARAMETER, "queue id 7", **plain | {"queue_id": 7})


@pytest.mark.parametrize("fault", FAULTS)
async def test_c01_each_check_has_its_code_and_comes_before_those_behind_it(
    start_broker: StartBroker, fault: str
) -> None:
    await with_faults(start_broker)
    behind = list(FAULTS)[list(FAULTS).index(fault) :]
    permission = 2 if fault == "broker" else 6
    async with start_broker(
        broker_permission=permission, auto_create_subscription_group=False
    ) as running:
        await refused(running, *FAULTS[fault], **faulty([fault]))
        await refused(running, *FAULTS[fault], **faulty(behind))
        await refused(running, *FAULTS[fault], **faulty([fault, *behind[-2:]]))


async def test_c01_a_pull_without_a_group_looks_at_none(start_broker: StartBroker) -> None:
    async with start_broker(auto_create_subscription_group=False) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"x")
        before = [each.group for each in running.broker.services.groups.configs.list()]
        assert bodies(await pulled(running, consumer_group="")) == [b"x"]
        assert [each.group for each in running.broker.services.groups.configs.list()] == before


async def test_c01_a_group_comes_to_be_by_its_first_pull_and_is_saved(
    tmp_path: Path, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"x")
    assert bodies(await pulled(running)) == [b"x"]
    saved = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_text())
    assert "g" in saved["subscriptionGroupTable"]


async def test_c01_a_refused_pull_makes_no_group(running: RunningBroker) -> None:
    await running.create_topic("T")
    for fields in ({"topic": "Unknown"}, {"queue_id": 9}, {"commit_offset": -1}):
        await pulled(running, **fields)
    assert "g" not in running.broker.services.groups.configs


async def test_c01_no_more_groups_come_to_be_by_pulls_than_may(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(groups_max=9))
    async with start_broker(limits=limits) as running:
        await running.create_topic("T")
        assert (await pulled(running)).status.code == ResponseCode.PULL_NOT_FOUND
        words = "the number of consumer groups would exceed the limit 9"
        await refused(running, ResponseCode.SYSTEM_BUSY, words, consumer_group="h")


@pytest.mark.parametrize("group", ["a b", "a/../b", "g" * 121])
async def test_c01_a_name_that_no_group_may_have_is_refused(
    group: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await refused(
        running, ResponseCode.INVALID_PARAMETER, "consumer_group is", consumer_group=group
    )


async def test_c01_the_registered_subscription_filters_a_pull(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append_tagged(running, a="A", b="B", c="A")
    await heartbeat(running, "c1", consumer("g", subscription("T", 1, "A || C")))
    found = await pulled(running, registered_subscription=True, sub_version=1)
    assert bodies(found) == [b"a", b"c"]
    await heartbeat(running, "c1", consumer("g", subscription("T", 2, "B")))
    assert bodies(await pulled(running, registered_subscription=True)) == [b"b"]
    assert bodies(await pulled(running, expression="A")) == [b"a", b"c"]


async def test_c01_a_registered_condition_filters_a_pull(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append_tagged(running, a="A", b="B")
    await heartbeat(running, "c1", consumer("g", sql("TAGS = 'B'")))
    assert bodies(await pulled(running, registered_subscription=True)) == [b"b"]


async def test_c01_a_subscription_that_is_not_there_is_told(running: RunningBroker) -> None:
    await running.create_topic("T")
    fields = {"registered_subscription": True}
    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    await refused(running, code, "the consumer's group info not exist: group 'g'", **fields)
    await heartbeat(running, "c1", consumer("g", "U"))
    words = "the consumer's subscription not exist: group 'g' to topic 'T'"
    await refused(running, code, words, **fields)
    await heartbeat(running, "c1", consumer("g", "T"))
    assert (await pulled(running, **fields)).status.code == ResponseCode.PULL_NOT_FOUND
    await unregister(running, "c1")
    await refused(running, code, "group info not exist", **fields)


async def test_c01_an_older_subscription_than_the_callers_is_told(running: RunningBroker) -> None:
    await running.create_topic("T")
    await heartbeat(running, "c1", consumer("g", subscription("T", 5)))
    words = "subscribes to topic 'T' with version 5, the pull has 6"
    await refused(
        running,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        words,
        registered_subscription=True,
        sub_version=6,
    )
    for version in (4, 5):
        answer = await pulled(running, registered_subscription=True, sub_version=version)
        assert answer.status.code == ResponseCode.PULL_NOT_FOUND


async def test_c04_a_registered_condition_that_cannot_be_read_is_told(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await heartbeat(running, "c1", consumer("g", sql("a = ")))
    code, words = ResponseCode.FILTER_DATA_NOT_EXIST, "Group 'g', topic 'T': parse"
    await refused(running, code, words, registered_subscription=True)


async def test_c01_a_group_that_may_not_broadcast_does_not(running: RunningBroker) -> None:
    await running.create_topic("T")
    await change_group(running, "g", consume_broadcast_enable=False)
    broadcasting = consumer("g", "T", message_model=groups_pb2.BROADCASTING)
    await heartbeat(running, "c1", broadcasting)
    words = "the consumer group[g] can not consume by broadcast way"
    await refused(running, ResponseCode.NO_PERMISSION, words, registered_subscription=True)
    # As in RocketMQ, a pull with its own filter does not use the group's subscription.
    assert (await pulled(running)).status.code == ResponseCode.PULL_NOT_FOUND
    await change_group(running, "g", consume_broadcast_enable=True)
    answer = await pulled(running, registered_subscription=True)
    assert answer.status.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(("bits", "is_refused"), [(4, True), (7, True), (3, False), ("4", False)])
async def test_c01_a_group_that_is_forbidden_for_a_topic_is_told(
    start_broker: StartBroker, tmp_path: Path, bits: object, is_refused: bool
) -> None:
    (tmp_path / "config").mkdir()
    content = {"forbiddenTable": {"g": {"T": bits}, "h": 4}, "subscriptionGroupTable": {}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps(content))
    async with start_broker() as running:
        await running.create_topic("T")
        for group in ("g", "h"):
            await heartbeat(running, "c1", consumer(group, "T"))
            answer = await pulled(running, consumer_group=group, registered_subscription=True)
            if is_refused and group == "g":
                assert answer.status.code == ResponseCode.NO_PERMISSION
                assert "the consumer group[g] is forbidden for topic[T]" in answer.status.remark
            else:
                assert answer.status.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"class_filter": True}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "a class filter needs"),
        (
            {"class_filter": True, "consumer_group": ""},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "a class filter needs",
        ),
        (
            {"registered_subscription": True, "expression": "A"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "has a filter and names",
        ),
        (
            {"registered_subscription": True, "tags_codes": [1]},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "has a filter and names",
        ),
        (
            {"registered_subscription": True, "consumer_group": ""},
            ResponseCode.INVALID_PARAMETER,
            "consumer_group is ''",
        ),
        (
            {"commit_offset": 1, "consumer_group": ""},
            ResponseCode.INVALID_PARAMETER,
            "consumer_group is ''",
        ),
    ],
)
async def test_c02_flags_that_cannot_be_honoured_are_refused(
    fields: dict[str, Any], code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await refused(running, code, words, **fields)


async def test_c08_a_held_pull_of_a_group_is_checked_again_when_it_goes_on(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(pulled(running, wait_ms_max=30_000))
    await running.held(1)
    await change_group(running, "g", consume_enable=False)
    running.clock.advance(30_000)
    answer = await pull
    assert answer.status.code == ResponseCode.NO_PERMISSION
    assert "consumeEnable is false" in answer.status.remark


async def test_c08_a_held_pull_goes_on_with_the_newest_subscription(running: RunningBroker) -> None:
    await running.create_topic("T")
    await heartbeat(running, "c1", consumer("g", subscription("T", 1, "A")))
    fields = {"registered_subscription": True, "sub_version": 1, "wait_ms_max": 30_000}
    pull = asyncio.ensure_future(pulled(running, **fields))
    await running.held(1)
    await heartbeat(running, "c1", consumer("g", subscription("T", 2, "B")))
    await append_tagged(running, a="A", b="B")
    assert bodies(await pull) == [b"b"]


async def test_c01_a_group_that_is_switched_off_stops_in_the_midst_of_a_pull(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for _ in range(100):
        await running.append("T", 0, bytes(200_000))
    request = broker_pb2.PullRequest(topic="T", consumer_group="g", response_bytes_max=1)
    call = running.data.Pull(request)
    assert (await call.read()).status.code == ResponseCode.SUCCESS
    await change_group(running, "g", consume_enable=False)
    count = 0
    while (response := await call.read()).status.code == ResponseCode.SUCCESS:
        count += 1
    assert response.status.code == ResponseCode.NO_PERMISSION
    assert count < 99

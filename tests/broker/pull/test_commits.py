"""The offset that a pull carries is committed for its group, or the pull is refused."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from msgspec import structs

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.pull.test_checks import change_group, pulled, refused
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import before_call, failing


def committed(running: RunningBroker, group: str = "g", queue_id: int = 0) -> int:
    return running.broker.services.offsets.committed.query(group, "T", queue_id)


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (0, ResponseCode.SUCCESS),
        (2, ResponseCode.PULL_NOT_FOUND),
        (9, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
async def test_c07_the_offset_of_a_pull_is_committed_whatever_is_found(
    offset: int, code: ResponseCode, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a", b"b")
    answer = await pulled(running, offset=offset, commit_offset=1)
    assert answer.status.code == code
    assert (committed(running), committed(running, queue_id=1)) == (1, -1)


async def test_c07_a_commit_of_0_is_one_and_a_pull_without_one_commits_nothing(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await pulled(running)
    assert committed(running) == -1
    await pulled(running, commit_offset=0)
    assert committed(running) == 0


async def test_c07_a_held_pull_has_committed_and_does_not_again(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a")
    pull = asyncio.ensure_future(pulled(running, offset=1, commit_offset=1, wait_ms_max=30_000))
    await running.held(1)
    assert committed(running) == 1
    running.broker.services.offsets.committed.commit("g", "T", 0, 5)
    await running.append("T", 0, b"b")
    await pull
    assert committed(running) == 5


async def test_c07_the_first_commit_makes_the_retry_topic(running: RunningBroker) -> None:
    await running.create_topic("T")
    await pulled(running)
    assert "%RETRY%g" not in running.broker.services.topics
    await pulled(running, commit_offset=0)
    assert "%RETRY%g" in running.broker.services.topics


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"commit_offset": -1}, ResponseCode.INVALID_PARAMETER, "offset is -1"),
        (
            {"commit_offset": 1, "consumer_group": "CID_RMQ_SYS_TRANS"},
            ResponseCode.NO_PERMISSION,
            "the progress of group 'CID_RMQ_SYS_TRANS' is the broker's own",
        ),
        ({"commit_offset": 1, "queue_id": 9}, ResponseCode.INVALID_PARAMETER, "queue id 9"),
        ({"commit_offset": 1, "topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST, "Unknown"),
        ({"commit_offset": 1, "offset": -1}, ResponseCode.INVALID_PARAMETER, "offset is -1"),
    ],
)
async def test_c07_a_wrong_commit_refuses_the_pull_and_a_refused_pull_commits_nothing(
    fields: dict[str, Any], code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a")
    await refused(running, code, words, **fields)
    entries = running.broker.services.offsets.committed.entries()
    assert [entry async for entry in entries] == []


async def test_c07_a_group_that_may_not_consume_does_not_commit(running: RunningBroker) -> None:
    await running.create_topic("T")
    await change_group(running, "g", consume_enable=False)
    await refused(running, ResponseCode.NO_PERMISSION, "g", commit_offset=1)
    assert committed(running) == -1


async def test_c07_what_a_pull_has_committed_is_there_after_a_restart(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, *[b"a"] * 7)
        await pulled(running, commit_offset=7)
    async with start_broker() as running:
        assert committed(running) == 7


async def test_c07_a_full_disk_keeps_no_group_from_pulling(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"a")
        with monkeypatch.context() as patch:
            before_call(patch, "fsync", "*/config/*", failing(errno.ENOSPC))
            answer = await pulled(running, commit_offset=0)
        assert answer.status.code == ResponseCode.SUCCESS
        assert committed(running) == 0


async def test_c12_a_group_is_sent_where_its_configuration_says(
    start_broker: StartBroker,
) -> None:
    async with start_broker(slave_read_enable=True) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"a", b"b")
        configs = running.broker.services.groups.configs
        group = structs.replace(
            configs.get_or_create("g"), broker_id=3, which_broker_when_consume_slowly=4
        )
        await configs.update(group)
        hot = await pulled(running)
    settings: dict[str, Any] = {"access_message_in_memory_max_ratio": 0}
    async with start_broker(slave_read_enable=True, **settings) as running:
        cold = await pulled(running)
        at_end = await pulled(running, offset=2)
        unmatched = await pulled(running, expression="none")
        answers = [hot, cold, at_end, unmatched]
        assert [each.suggested_broker_id for each in answers] == [3, 4, 3, 4]
        plain = await pulled(running, consumer_group="")
        assert plain.suggested_broker_id == 1

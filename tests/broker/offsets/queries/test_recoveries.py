"""QueryOffsets after recoveries that cut queues, through real gRPC. S5.

Callers that know an older recovery are notified where queues were cut.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from rocketpy_broker.services.offsets import service
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.offsets.queries.test_queries import WAIT_MS, ask, delete_topic, known
from tests.broker.offsets.test_reset_service import places, reset
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.event_loop import counted_slots
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.copies import copy_running_store, copy_store


class Disk:
    """A broker's directory as a power cut leaves it: as of the last `flush`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder.with_name(folder.name + "-kept")

    def flush(self) -> None:
        shutil.rmtree(self._kept, ignore_errors=True)
        copy_running_store(self._folder, self._kept)

    def flush_progress(self) -> None:
        """Flushes only groups' progress, which is saved apart from the log."""
        name = "config/consumerOffset.json"
        shutil.copy(self._folder / name, self._kept / name)

    def cut_power(self) -> None:
        shutil.rmtree(self._folder)
        copy_store(self._kept, self._folder)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def cuts(response: broker_pb2.QueryOffsetsResponse) -> list[list[int | None]]:
    return [
        [queue.cut_offset if queue.HasField("cut_offset") else None for queue in topic.queues]
        for topic in response.topics
    ]


async def test_s5_an_older_recovery_is_answered_with_cuts_for_each_queue(
    start_broker: StartBroker, disk: Disk
) -> None:
    async with start_broker() as running:
        await running.create_topic("T", 3)
        await running.create_topic("U", 1)
        for queue_id, count in enumerate((3, 1)):
            await running.append("T", queue_id, *[b"kept"] * count)
        first = (await ask(running, topics=["T"])).recovery_id
        disk.flush()
        for queue_id in range(3):
            await running.append("T", queue_id, *[b"lost"] * 5)
    disk.cut_power()
    async with start_broker() as running:
        await running.append("T", 0, *[b"new"] * 9)
        await running.append("U", 0, b"new")
        topics = {"topics": ["T", "none", "U"]}
        answer = await ask(running, recovery_id=first, **topics)
        assert cuts(answer) == [[3, 1, 0], [], [0]]
        assert [queue.max_offset for queue in answer.topics[0].queues] == [12, 1, 0]
        second = answer.recovery_id
        assert second not in {"", first}
        for recovery_id in (second, "", "x" * 1_000):
            answer = await ask(running, recovery_id=recovery_id, **topics)
            assert cuts(answer) == [[None] * 3, [], [None]]
            assert answer.recovery_id == second
        disk.flush()
    async with start_broker() as running:
        # It was stopped: no recovery.
        assert (await ask(running, topics=["T"])).recovery_id == second
    disk.cut_power()
    async with start_broker() as running:
        # As of a killed process, which loses nothing.
        for recovery_id, cut in ((second, [12, 1, 0]), (first, [3, 1, 0])):
            answer = await ask(running, topics=["T"], recovery_id=recovery_id)
            assert cuts(answer) == [cut]
        await delete_topic(running, "T")
        await running.create_topic("T", 1)
        await running.append("T", 0, b"again")
        assert cuts(await ask(running, topics=["T"], recovery_id=first)) == [[0]]


async def test_s5_who_knows_an_older_recovery_is_not_held(
    start_broker: StartBroker, disk: Disk
) -> None:
    """Covers queues that have grown to the very maxima that the caller knows."""
    async with start_broker() as running:
        await running.create_topic("T", 2)
        disk.flush()
        await running.append("T", 0, b"lost")
        before = await ask(running, topics=["T"])
    disk.cut_power()
    async with start_broker() as running:
        await running.append("T", 0, b"new")
        held = {"topics": ["T"], "known": known(before), "wait_ms_max": WAIT_MS}
        answer = await ask(running, recovery_id=before.recovery_id, **held)
        assert cuts(answer) == [[0, 0]]
        calls = [
            asyncio.ensure_future(ask(running, recovery_id=recovery_id, **held))
            for recovery_id in (answer.recovery_id, "", "unknown")
        ]
        await running.held(len(calls))
        await running.append("T", 1, b"wakes")
        assert [cuts(each) for each in await asyncio.gather(*calls)] == [[[None, None]]] * 3


async def test_s5_others_have_turns_while_many_queues_are_looked_through(
    start_broker: StartBroker, disk: Disk
) -> None:
    async with start_broker() as running:
        await running.create_topic("T", service.QUEUES_A_SLOT)
        first = (await ask(running, topics=["T"])).recovery_id
        disk.flush()
    disk.cut_power()
    async with start_broker() as running:
        async with counted_slots() as slots:
            await ask(running, topics=["T"])
            assert not slots
            answer = await ask(running, topics=["T"], recovery_id=first)
        assert len(slots) >= service.QUEUES_A_SLOT / service.LOOKUPS_A_SLOT
        assert cuts(answer) == [[0] * service.QUEUES_A_SLOT]


async def test_s5_a_pull_behind_a_cut_is_refused_by_name(
    start_broker: StartBroker, disk: Disk
) -> None:
    async with start_broker() as running:
        await running.create_topic("T", 1)
        await running.append("T", 0, b"kept")
        first = (await ask(running, topics=["T"])).recovery_id
        disk.flush()
        await running.append("T", 0, b"lost")
    disk.cut_power()
    async with start_broker() as running:
        await running.append("T", 0, b"new", b"new")
        [answer] = await running.pull(topic="T", offset=1, recovery_id=first)
        assert answer.status.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.status.remark.startswith(
            "a power cut or a promotion took the messages of queue 0 of topic 'T' from offset 1 on"
        )
        for offset_end in (0, 1, 3):
            whole = {"topic": "T", "offset_end": offset_end}
            [answer] = await running.pull(recovery_id=first, **whole)
            assert (answer.status.code, answer.next_offset) == (0, 1)
            for recovery_id in ("", "x" * 1_000):
                [answer] = await running.pull(recovery_id=recovery_id, **whole)
                assert (answer.status.code, answer.next_offset) == (0, offset_end or 3)


async def commit(running: RunningBroker, group: str, *offsets: int) -> None:
    entries = [
        broker_pb2.CommittedOffset(topic="T", queue_id=queue_id, offset=offset)
        for queue_id, offset in enumerate(offsets)
    ]
    request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=entries)
    assert (await running.data.CommitOffsets(request)).status.code == ResponseCode.SUCCESS


async def committed(running: RunningBroker, group: str) -> list[int]:
    answer = await ask(running, topics=["T"], consumer_group=group)
    return [queue.committed_offset for queue in answer.topics[0].queues]


async def test_s5_a_group_goes_on_where_a_power_cut_has_ended_its_queues(
    start_broker: StartBroker, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards against a group that skips new messages at lost offsets of regrown queues."""
    async with start_broker() as running:
        await running.create_topic("T", 3)
        await running.append("T", 0, *[b"kept"] * 5)
        await commit(running, "g", 0, 0, 0)
        disk.flush()
        for queue_id, count in enumerate((10, 2)):
            await running.append("T", queue_id, *[b"lost"] * count)
        await commit(running, "g", 15, 2)
        await commit(running, "behind", 3, 0)
    disk.flush_progress()
    disk.cut_power()
    async with start_broker() as running:
        assert "T@g: queue 0 at 15, ends at 5; queue 1 at 2, ends at 0" in caplog.text
        assert "T@behind" not in caplog.text
        await running.append("T", 0, *[b"new"] * 20)
        assert await committed(running, "g") == [5, 0, 0]
        assert await committed(running, "behind") == [3, 0, -1]
        disk.flush()
    disk.flush_progress()
    disk.cut_power()
    async with start_broker() as running:
        # The change was saved: the queue is now longer than the group's old progress.
        assert await committed(running, "g") == [5, 0, 0]


async def test_s5_a_group_that_was_set_back_stays_there_over_a_kill(
    start_broker: StartBroker, start_crashed: StartBroker, disk: Disk
) -> None:
    """Kills the broker before progress is saved by interval; the queues then grow again."""
    async with start_broker() as running:
        await running.create_topic("T", 1)
        await running.append("T", 0, *[b"kept"] * 5)
        await commit(running, "g", 0)
        await commit(running, "h", 0)
        disk.flush()
        await running.append("T", 0, *[b"lost"] * 10)
        await commit(running, "g", 15)
        await heartbeat(running, "c1", consumer("h", "T"))
        assert places(await reset(running, consumer_group="h", latest=True, force=True))
    disk.flush_progress()
    disk.cut_power()
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.append("T", 0, *[b"new"] * 20)
    async with start_broker() as running:
        assert await committed(running, "g") == await committed(running, "h") == [5]
        await heartbeat(running, "c1", consumer("h", "T"))
        [moved] = await running.pull(topic="T", offset=15, consumer_group="h")
        assert (moved.status.code, moved.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 5)

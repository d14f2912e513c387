"""A crash loses nothing that was answered, and brings nothing twice."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.broker.crash.subjects import SUBJECTS, Saved
from tests.broker.delay.test_levels import save_progress
from tests.support.broker.running_broker import StartBroker
from tests.support.broker.transactions import Producer
from tests.support.store.disk_calls import refuse_writes


def crashes() -> Iterator[Any]:
    """Yields each subject with each queue to which a crash lets nothing come, and with none."""
    for name, subject in SUBJECTS.items():
        for queue in (None, *subject(Producer()).appends_to):
            named = "all" if queue is None else f"{queue.topic}-{queue.queue_id}"
            yield pytest.param(name, queue, id=f"{name}, {named}")


def saves() -> Iterator[Any]:
    for name, subject in SUBJECTS.items():
        for saved in subject(Producer()).saved:
            yield pytest.param(name, saved, id=f"{name}, {saved[0]} {[*saved[1]]}")


@pytest.mark.parametrize(
    ("flush", "is_saved"),
    [
        (FlushDiskType.SYNC_FLUSH, False),
        (FlushDiskType.ASYNC_FLUSH, False),
        (FlushDiskType.ASYNC_FLUSH, True),
    ],
)
@pytest.mark.parametrize(("name", "refused"), [*crashes()])
async def test_d04_r01_t05_what_was_answered_before_a_crash_comes_once_after_it(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    refused: QueueKey | None,
    flush: FlushDiskType,
    is_saved: bool,
) -> None:
    """Covers crashes between two appends of one piece of work, with and without a save there."""
    subject = SUBJECTS[name](producer)
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            await subject.send(running)
            if refused is not None:
                refuse_writes(patch, errno.ENOSPC, refused)
            await subject.work(running)
            if is_saved:
                flush_now(running.broker.store)
                await save_progress(running)
    async with start_broker(flush) as running:
        await subject.finish(running)
        assert await subject.found(running) == subject.wanted


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize(("name", "saved"), [*saves()])
async def test_d04_r01_t05_places_saved_beyond_what_is_there_hide_nothing(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    saved: Saved,
    is_refused: bool,
) -> None:
    """Covers a log that a power cut or RocketMQ cut; the next start finds it shorter still."""
    subject = SUBJECTS[name](producer)
    async with start_broker():
        pass
    save(tmp_path / "config", *saved)
    with monkeypatch.context() as patch:
        async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
            await running.create_topic("T")
            await subject.send(running)
            if is_refused:
                refuse_writes(patch, errno.ENOSPC, subject.appends_to[-1])
            await subject.work(running)
    async with start_broker() as running:
        await subject.finish(running)
        assert await subject.found(running) == subject.wanted


def save(config: Path, name: str, fields: dict[str, Any]) -> None:
    """Changes fields of a file that the broker has saved."""
    path = config / name
    content = json.loads(path.read_text()) if path.exists() else {}
    for field, value in fields.items():
        content[field] = content.get(field, {}) | value if isinstance(value, dict) else value
    path.write_text(json.dumps(content))

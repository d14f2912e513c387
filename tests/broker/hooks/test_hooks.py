"""Hooks: they see sends and pulls, may refuse a send, and fail without harm."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from rocketpy_broker.hooks import (
    ConsumeContext,
    ConsumeOutcome,
    Hook,
    HookAbortError,
    SendContext,
    SendOutcome,
)
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from tests.support.broker.installed_hooks import installed
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import refuse_writes


class Watching(Hook):
    """A hook that keeps what it sees and refuses sends to a topic."""

    hook_name = "watching"
    seen: ClassVar[list[Any]] = []

    def before_send(self, context: SendContext) -> None:
        self.seen.append(context)
        if context.topic == "Closed":
            raise HookAbortError("closed for today", ResponseCode.SYSTEM_BUSY)

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        self.seen.append((context, outcome))

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append(context)

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        self.seen.append(outcome)


class Failing(Hook):
    """A hook that fails at every call."""

    hook_name = "failing"

    def before_send(self, context: SendContext) -> None:
        raise ZeroDivisionError

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        raise ZeroDivisionError

    def before_consume(self, context: ConsumeContext) -> None:
        raise HookAbortError("too late for that")


class Committed(Hook):
    """A hook that keeps a group's committed offset and the number of events of moved offsets."""

    hook_name = "committed"
    running: ClassVar[RunningBroker]
    done: ClassVar[list[str]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.done.append(f"before {self._committed()}")

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        events = self.running.broker.store.next_offset(QueueKey("OFFSET_MOVED_EVENT", 0))
        self.done.append(f"after {outcome.status} {self._committed()} {events}")

    def _committed(self) -> int | None:
        return self.running.broker.services.offsets.committed.query("g", "T", 0)


def not_a_hook() -> object:
    return object()


HERE = "tests.broker.hooks.test_hooks"
HOOKS = {"b": "Watching", "a": "Failing", "c": "Missing", "d": "not_a_hook"}


@pytest.fixture(autouse=True)
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Installs these hooks; two of the four cannot be used."""
    named = {name: f"{HERE}:{hook}" for name, hook in HOOKS.items()}
    Watching.seen.clear()
    Committed.done.clear()
    with installed(tmp_path_factory.mktemp("hooks"), **named):
        yield


async def test_p02_hooks_see_a_send_and_a_pull(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        stored = await running.append("T", 1, b"one", b"two")
        assert stored.status.code == ResponseCode.SUCCESS
        (answer,) = await running.pull(topic="T", queue_id=1, offset=0, consumer_group="g")
    context, (same, outcome), pull, pulled = Watching.seen
    assert context == same == SendContext("T", 1, 2, len(answer.records))
    assert outcome == SendOutcome(ResponseCode.SUCCESS, "", 1, 0, stored.physical_offset)
    assert pull == ConsumeContext("g", "T", 1, 0)
    assert pulled == ConsumeOutcome("FOUND", 2, len(answer.records), 2)
    assert "hook 'c' cannot be loaded" in caplog.text
    assert "hook 'd' is no rocketpy_broker.hooks.Hook" in caplog.text


async def test_p02_a_hook_that_fails_is_counted_and_harms_nobody(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for _ in range(20):
            assert (await running.append("T", 0, b"x")).status.code == ResponseCode.SUCCESS
        assert running.broker.services.hooks.failures == {"failing": 40}
    assert caplog.text.count("hook 'failing' failed") == 3


async def test_p02_a_hook_may_refuse_a_send_with_its_own_words(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("Closed")
        answer = await running.append("Closed", 0, b"x")
        assert answer.status.code == ResponseCode.SYSTEM_BUSY
        assert answer.status.remark == "closed for today"
        assert running.broker.store.queues() == []
    assert len(Watching.seen) == 1


async def test_p02_after_hooks_see_what_the_store_refuses_and_nothing_that_never_got_there(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.append("Unknown", 0, b"x")
        await running.create_topic("T")
        with monkeypatch.context() as patch:
            refuse_writes(patch, errno.ENOSPC, QueueKey("T", 0))
            await running.append("T", 0, b"x")
    unknown, context, (same, outcome) = Watching.seen
    assert unknown == SendContext("Unknown", 0, 1, unknown.record_bytes)
    assert (context, outcome.code, outcome.queue_offset) == (
        same,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        -1,
    )


async def test_p02_hooks_are_around_what_a_groups_pull_commits_and_tells(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("committed")
    with installed(folder, e=f"{HERE}:Committed"):
        async with start_broker() as running:
            await running.create_topic("T")
            Committed.running = running
            wanted = {"topic": "T", "consumer_group": "g", "offset": 3, "commit_offset": 2}
            await running.pull(**wanted)
            await running.pull(**{**wanted, "commit_offset": -1})
            await running.pull(**{**wanted, "topic": "Unknown"})
    assert Committed.done == ["before -1", "after NO_MATCHED_LOGIC_QUEUE 2 1"]

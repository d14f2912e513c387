"""Histories of delayed messages: the judge finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.messages.model import Message
from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.delayed import BODY_BYTES, DELAY_MS, DelayedMessages, lateness_ms
from tests.faults.histories.events import FINAL, Calm
from tests.faults.histories.history import History, body_of, id_of, judge

BORN_MS = 1_700_000_000_000
QUEUE = QueueKey("T", 0)
BODIES = [body_of(f"m{number}", BODY_BYTES) for number in range(4)]


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=ms)


def came(offset: int, body: bytes) -> Message:
    """Returns a message that was born just after its send, and delivered 10 ms late."""
    return Message(
        topic="T",
        queue_id=0,
        queue_offset=offset,
        stored_body=body,
        sys_flag=0,
        tags=None,
        keys=(),
        properties={},
        msg_id=id_of(body),
        offset_msg_id="",
        born_timestamp=at(BORN_MS + 2),
        born_host="",
        store_timestamp=at(BORN_MS + 2 + DELAY_MS + 10),
        store_host="",
        commit_log_offset=0,
    )


@pytest.fixture
def messages(tmp_path: Path) -> DelayedMessages:
    """Returns a history with two acknowledged blocks, and one without an answer."""
    sent = DelayedMessages(LocalBroker(tmp_path), 1)
    for block in (BODIES[:2], BODIES[2:3], BODIES[3:]):
        sent.begin(QUEUE, block, BORN_MS)
        if block is not BODIES[3:]:
            sent.history.acked([id_of(body) for body in block], 0, None)
    return sent


def found(messages: DelayedMessages, read: list[Message]) -> set[str]:
    for message in read:
        messages.came(FINAL, message)
    return {fault.kind for fault in judge(messages.history)}


def test_d1_messages_that_come_in_time_are_right(messages: DelayedMessages) -> None:
    read = [came(offset, body) for offset, body in enumerate(BODIES)]
    for message in read[:2]:
        messages.came("after kill 1", message)
    assert found(messages, read) == set()
    assert found(messages, []) == set()


def come_early(read: list[Message]) -> None:
    read[1] = replace(read[1], store_timestamp=at(BORN_MS + 1 + DELAY_MS))


def come_early_with_a_false_birth(read: list[Message]) -> None:
    born, stored = at(BORN_MS - 9), at(BORN_MS - 1 + DELAY_MS)
    read[1] = replace(read[1], born_timestamp=born, store_timestamp=stored)


def be_lost(read: list[Message]) -> None:
    del read[0]


def come_twice(read: list[Message]) -> None:
    read.append(replace(read[-1], queue_offset=4))


def come_from_nowhere(read: list[Message]) -> None:
    read.append(came(4, body_of("m9", BODY_BYTES)))


def come_changed(read: list[Message]) -> None:
    read[0] = replace(read[0], stored_body=read[0].stored_body[:-1])


def come_elsewhere(read: list[Message]) -> None:
    read[0] = replace(read[0], queue_id=1)


def change_places(read: list[Message]) -> None:
    read[1:3] = [came(1, BODIES[2]), came(2, BODIES[1])]


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (come_early, "early"),
        (come_early_with_a_false_birth, "early"),
        (be_lost, "lost"),
        (come_twice, "duplicate"),
        (come_from_nowhere, "phantom"),
        (come_changed, "wrong"),
        (come_elsewhere, "moved"),
        (change_places, "reordered"),
    ],
)
def test_d1_a_planted_fault_is_found_and_again_in_the_file(
    messages: DelayedMessages, plant: Callable[[list[Message]], None], kind: str, tmp_path: Path
) -> None:
    read = [came(offset, body) for offset, body in enumerate(BODIES)]
    plant(read)
    assert found(messages, read) == {kind}
    with pytest.raises(AssertionError, match="judge again"):
        messages.history.check(tmp_path, 0)
    assert judge(History.load(tmp_path / "history.jsonl")) == judge(messages.history)


def test_d1_what_was_read_before_a_kill_is_there_after_it(messages: DelayedMessages) -> None:
    messages.came("after kill 1", came(3, BODIES[3]))
    read = [came(offset, body) for offset, body in enumerate(BODIES[:3])]
    assert found(messages, read) == {"lost"}


def test_d1_lateness_is_counted_where_the_broker_served(messages: DelayedMessages) -> None:
    for offset, body in enumerate(BODIES):
        messages.came(FINAL, came(offset, body))
    due_ms = BORN_MS + 2 + DELAY_MS
    assert list(lateness_ms(messages.history)) == []
    messages.history.events.append(Calm(due_ms + 1, due_ms + 11))
    assert list(lateness_ms(messages.history)) == []
    messages.history.events.append(Calm(due_ms, due_ms + 11))
    assert list(lateness_ms(messages.history)) == [10] * 4

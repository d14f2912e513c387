"""A broker with small log segments: each producer of blocks cuts them to fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import MessageIllegalError
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.model import OutgoingMessage
from tests.support.broker.shell import run

SEGMENT = 1 << 20
BODY = b"x" * 100_000
TOPIC = "t" * 127


@pytest.fixture(scope="module")
def small() -> Iterator[LocalBroker]:
    with LocalBroker(commit_log_segment_bytes=SEGMENT) as broker:
        yield broker


def test_a_send_is_cut_to_the_segments_of_the_log(small: LocalBroker) -> None:
    small.create_topic("cut", queues=1)
    sent = small.send("cut", [BODY] * 20)
    assert [each.queue_offset for each in sent] == list(range(20))
    assert [message.body for message in small.messages("cut")] == [BODY] * 20


def test_a_file_is_cut_to_the_segments_of_the_log(small: LocalBroker, tmp_path: Path) -> None:
    small.create_topic("file", queues=1)
    line = json.dumps({"body": BODY.decode()}) + "\n"
    (tmp_path / "file").write_text(line * 20, encoding="utf-8")
    done = run(small, "message", "send", "file", "--file", str(tmp_path / "file"))
    assert done.exit_code == 0, done.output
    assert len(small.messages("file")) == 20


def test_small_messages_that_wait_are_cut_with_what_waiting_adds(small: LocalBroker) -> None:
    small.create_topic(TOPIC, queues=1, exist_ok=True)
    before = len(small.messages(TOPIC))
    small.send(TOPIC, [b""] * 5_000, delay_level=18)
    small.send(TOPIC, [b""] * 5_000, deliver_at=small.now() + timedelta(hours=2))
    small.advance_clock(timedelta(hours=2))
    assert len(small.messages(TOPIC)) - before == 10_000


def test_a_message_that_fits_no_segment_is_refused_by_name(small: LocalBroker) -> None:
    small.create_topic("large")
    bodies = ["fits", "x" * SEGMENT]
    with pytest.raises(
        LocalBrokerError,
        match=rf"message 1: its record has \d+ bytes, limit {SEGMENT - 8} \(a segment of the log\)",
    ):
        small.send("large", bodies)
    assert small.messages("large") == []
    with (
        BrokerConnection(small.endpoint) as connection,
        pytest.raises(MessageIllegalError, match="its record has"),
    ):
        transactions.prepare(connection, "large", "G", OutgoingMessage(b"x" * SEGMENT))


def test_the_largest_message_that_fits_is_sent(small: LocalBroker) -> None:
    small.create_topic("largest")
    with pytest.raises(LocalBrokerError) as refused:
        small.send("largest", b"x" * SEGMENT)
    found = re.search(r"its record has (\d+) bytes", str(refused.value))
    assert found
    beside = int(found[1]) - SEGMENT
    small.send("largest", b"x" * (SEGMENT - 8 - beside))
    with pytest.raises(LocalBrokerError, match="its record has"):
        small.send("largest", b"x" * (SEGMENT - 7 - beside))


def test_half_messages_and_messages_that_wait_fit_too_or_are_refused(small: LocalBroker) -> None:
    small.create_topic(TOPIC, queues=1, exist_ok=True)
    before = len(small.messages(TOPIC))
    body = b"x" * (SEGMENT - 400)
    for options in (
        {"delay_level": 1},
        {"deliver_at": small.now() + timedelta(hours=1)},
    ):
        with pytest.raises(LocalBrokerError, match="Send less in a message"):
            small.send(TOPIC, body, **options)
    assert len(small.messages(TOPIC)) == before

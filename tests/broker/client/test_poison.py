"""Malformed messages at the broker's own readers.

A real broker accepts every well-formed message. Its clients, commands, filters, key queries and
retries read it; none stops, and each message is reported in one line.
"""

from __future__ import annotations

import itertools
import json
import tracemalloc
import zlib
from collections.abc import Sequence

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker import LocalBroker, Message
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.lookup import query_messages
from rocketpy_broker.client.messages.model import decode_messages
from rocketpy_broker.client.messages.resend import resend_dead_letters
from rocketpy_broker.client.messages.retries import dead_letters
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.broker.shell import run
from tests.support.hostile import HOSTILE_RECORDS, HostileRecord, block_bytes

MIB = 1 << 20
EVERYTHING = "a IS NULL OR a IS NOT NULL"
_numbers = itertools.count()


def sent(broker: LocalBroker, topic: str, records: Sequence[HostileRecord]) -> None:
    """Sends a block as it is."""
    block, sizes = block_bytes([record.sendable(topic) for record in records])
    append(broker, topic, block, sizes)


def append(broker: LocalBroker, topic: str, block: bytes, sizes: bytes) -> None:
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = broker_pb2.AppendRequest(topic=topic, records=block, record_sizes=sizes)
        [answer] = broker_pb2_grpc.BrokerStub(channel).Append(iter([request]))
    assert answer.status.code == 0, answer.status.remark


def count_of(broker: LocalBroker, topic: str, expression: str, end: int) -> int:
    """Returns how many messages of queue 0, below `end`, match an SQL92 condition."""
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = broker_pb2.PullRequest(
            topic=topic, offset_end=end, expression_type="SQL92", expression=expression
        )
        answers = list(broker_pb2_grpc.BrokerStub(channel).Pull(request))
    return sum(len(answer.record_sizes) // 4 for answer in answers)


def told(broker: LocalBroker, *words: str) -> list[str]:
    """Returns the lines that a command prints."""
    done = run(broker, *words)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


@given(st.lists(HOSTILE_RECORDS, min_size=1, max_size=6))
@settings(max_examples=15)
def test_s11_everything_that_is_stored_can_be_read_by_every_way(
    rocketpy_broker: LocalBroker, records: list[HostileRecord]
) -> None:
    topic, group = f"hostile-{next(_numbers)}", f"group-{next(_numbers)}"
    rocketpy_broker.create_topic(topic, queues=1)
    sent(rocketpy_broker, topic, records)
    messages = rocketpy_broker.messages(topic)
    assert [message.stored_body for message in messages] == [record.body for record in records]
    assert len(told(rocketpy_broker, "message", "tail", topic)) == len(records)
    shown = [json.loads(line) for line in told(rocketpy_broker, "message", "tail", topic, "--json")]
    assert [each.get("bodyError") for each in shown] == [each.body_error for each in messages]
    assert count_of(rocketpy_broker, topic, EVERYTHING, len(records)) == len(records)
    _found_by_key(rocketpy_broker, topic, messages)
    _sent_back(rocketpy_broker, topic, group, messages)
    assert "Traceback" not in rocketpy_broker.log_text()


def _found_by_key(broker: LocalBroker, topic: str, messages: list[Message]) -> None:
    with BrokerConnection(broker.endpoint) as connection:
        for message in messages:
            # Bytes that are no UTF-8 are shown as U+FFFD, which is another key.
            for key in (key for key in message.keys if key.isprintable() and "\ufffd" not in key):
                found = query_messages(connection, topic, key, 64)
                assert message.offset_msg_id in {each.offset_msg_id for each in found}
            told(broker, "message", "view", message.offset_msg_id)


def _sent_back(broker: LocalBroker, topic: str, group: str, messages: list[Message]) -> None:
    """Asserts that each becomes a dead letter, which can be shown and sent again."""
    for message in messages:
        assert broker.send_back(message, group, delay_level=-1) == "deadLetter"
    assert len(told(broker, "dlq", "list", group)) == len(messages)
    with BrokerConnection(broker.endpoint) as connection:
        letters = list(dead_letters(connection, group))
        assert [each.stored_body for each in letters] == [each.stored_body for each in messages]


def test_s11_a_damaged_body_is_told_on_its_line(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    record = encode_record(Record(rocketpy_topic, 0, b"no zlib", sys_flag=1))
    append(rocketpy_broker, rocketpy_topic, record, np.array([len(record)], ">i4").tobytes())
    [line] = told(rocketpy_broker, "message", "tail", rocketpy_topic)
    assert line.endswith("no zlib (as stored: it is no whole ZLIB stream)")


def test_s11_messages_take_no_more_memory_than_their_records() -> None:
    bomb = zlib.compress(bytes(60 * MIB), 9)
    encoded = [encode_record(Record("T", 0, bomb, sys_flag=1))] * 30
    sizes = np.array([len(one) for one in encoded], ">i4").tobytes()
    tracemalloc.start()
    messages = list(decode_messages(b"".join(encoded), sizes))
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()
    assert len(messages) == 30
    assert messages[29].body == bytes(60 * MIB)


def test_s11_keys_are_parted_by_blanks_alone() -> None:
    record = encode_record(Record("T", 0, b"", {"KEYS": "a\tb  c\u2003d "}))
    [message] = decode_messages(record, np.array([len(record)], ">i4").tobytes())
    assert message.keys == ("a\tb", "c\u2003d")


@pytest.mark.parametrize("body", [b"", b"x"])
def test_s11_a_dead_letter_with_a_damaged_body_is_sent_anew(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, body: bytes
) -> None:
    group = f"group-{next(_numbers)}"
    record = encode_record(Record(rocketpy_topic, 0, body, sys_flag=1))
    append(rocketpy_broker, rocketpy_topic, record, np.array([len(record)], ">i4").tobytes())
    [message] = rocketpy_broker.messages(rocketpy_topic)
    rocketpy_broker.send_back(message, group, delay_level=-1)
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        [_] = resend_dead_letters(connection, group, dead_letters(connection, group))
    assert [each.body for each in rocketpy_broker.messages(rocketpy_topic)] == [body, body]

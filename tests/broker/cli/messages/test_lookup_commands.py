"""`rocketpy message view` and `resend`, by ids and by offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError, Message
from rocketpy_proto.record import Host, encode_offset_message_id
from tests.support.broker.shell import run

_EXCHANGED = ["--from", "2026-01-02T00:00Z", "--to", "2026-01-01T00:00Z"]


@pytest.fixture
def messages(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> list[Message]:
    """Returns three messages in queue 0."""
    properties = {"shop": "3"}
    rocketpy_broker.send(
        rocketpy_topic, ["a", "b", "c"], tags="A", keys="k", properties=properties, queue_id=0
    )
    return rocketpy_broker.messages(rocketpy_topic)


def test_messages_are_shown_by_their_ids_and_by_their_offsets(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, messages: list[Message]
) -> None:
    first, second, third = messages
    ids = [first.offset_msg_id, third.offset_msg_id]
    shown = run(rocketpy_broker, "message", "view", *ids, "--json").stdout.splitlines()
    assert [json.loads(line)["body"] for line in shown] == ["a", "c"]
    words = ["--topic", rocketpy_topic, second.msg_id, "--json"]
    shown = run(rocketpy_broker, "message", "view", *words).stdout.splitlines()
    assert [json.loads(line)["body"] for line in shown] == ["b"]
    place = ["--topic", rocketpy_topic, "--queue", "0", "--offset", "2", "--offset", "0"]
    shown = run(rocketpy_broker, "message", "view", *place, "--json").stdout.splitlines()
    assert [json.loads(line)["queueOffset"] for line in shown] == [2, 0]
    assert run(rocketpy_broker, "message", "view", *place).stdout.count("field\tvalue\n") == 2


def test_a_message_is_sent_again_as_a_new_one(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, messages: list[Message]
) -> None:
    first, second, _ = messages
    words = [first.offset_msg_id, second.offset_msg_id]
    done = run(rocketpy_broker, "message", "resend", *words)
    assert done.stdout.count(f" to {rocketpy_topic}: queue ") == 2
    again = rocketpy_broker.messages(rocketpy_topic)[3:]
    assert [each.text for each in again] == ["a", "b"]
    assert [(each.tags, each.keys) for each in again] == [("A", ("k",))] * 2
    assert again[0].properties["shop"] == "3"
    assert len({each.msg_id for each in (first, second, *again)}) == 4


def test_a_message_is_sent_again_to_another_topic(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, messages: list[Message]
) -> None:
    rocketpy_broker.create_topic("cli-resent", queues=1)
    words = ["--topic", rocketpy_topic, "--queue", "0", "--offset", "1", "--to", "cli-resent"]
    done = run(rocketpy_broker, "message", "resend", *words, "--json")
    told = json.loads(done.stdout)
    assert (told["offsetMsgId"], told["topic"]) == (messages[1].offset_msg_id, "cli-resent")
    [sent] = rocketpy_broker.messages("cli-resent")
    assert (sent.text, sent.msg_id) == ("b", told["msgId"])
    assert len(rocketpy_broker.messages(rocketpy_topic)) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{id}", "7F00000100001F9100000000FFFFFFFF"], 1, "message"),
        (["{id}", "no-id"], 1, "hexadecimal"),
        (["{id}", "--topic", "Nowhere"], 1, "'Nowhere' does not exist"),
        (["{id}", "--to", "Nowhere"], 1, "'Nowhere' does not exist"),
        (["--topic", "{topic}", "--queue", "0", "--offset", "3"], 1, "no message is at offset 3"),
        (["--topic", "{topic}", "--queue", "99", "--offset", "0"], 1, "queue"),
        (["--topic", "{topic}", "--offset", "0"], 2, "--offset needs --topic and --queue"),
        (["{id}", "--queue", "0"], 2, "--queue needs --offset"),
        (["{id}", "--offset", "0"], 2, "give ids, or"),
        ([], 2, "give ids, or"),
    ],
)
def test_nothing_is_sent_where_one_message_is_not_there(
    rocketpy_broker: LocalBroker,
    rocketpy_topic: str,
    messages: list[Message],
    words: list[str],
    code: int,
    said: str,
) -> None:
    names = {"id": messages[0].offset_msg_id, "topic": rocketpy_topic}
    done = run(rocketpy_broker, "message", "resend", *[word.format(**names) for word in words])
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert len(rocketpy_broker.messages(rocketpy_topic)) == 3


def test_a_message_of_another_topic_is_told_as_such(
    rocketpy_broker: LocalBroker, messages: list[Message]
) -> None:
    rocketpy_broker.create_topic("cli-wrong", queues=1)
    words = ["message", "view", messages[0].offset_msg_id, "--topic", "cli-wrong"]
    done = run(rocketpy_broker, *words)
    assert (done.exit_code, f"is in topic {messages[0].topic}" in done.stderr) == (1, True)


@pytest.mark.parametrize("command", ["view", "resend"])
def test_a_message_of_another_broker_is_never_shown_as_one_of_this(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, messages: list[Message], command: str
) -> None:
    other = Host.parse("10.0.0.5:10911")
    msg_id = encode_offset_message_id(other, messages[0].commit_log_offset)
    for words in ([], ["--topic", rocketpy_topic]):
        done = run(rocketpy_broker, "message", command, msg_id, *words)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "is of the broker at 10.0.0.5:10911" in done.stderr
    assert len(rocketpy_broker.messages(rocketpy_topic)) == 3
    lower = run(rocketpy_broker, "message", "view", messages[0].offset_msg_id.lower(), "--json")
    assert json.loads(lower.stdout)["body"] == "a"


def test_a_query_shows_more_messages_than_one_page_has(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    bodies = [str(number) for number in range(70)]
    rocketpy_broker.send(rocketpy_topic, bodies, keys="k", tags="T", queue_id=0)
    for words in (["k"], ["--tag", "T"]):
        query = ["message", "query", rocketpy_topic, *words, "--count", "66", "--json"]
        shown = run(rocketpy_broker, *query)
        assert [json.loads(line)["body"] for line in shown.stdout.splitlines()] == bodies[4:]
    assert [each.text for each in rocketpy_broker.query(rocketpy_topic, "k", count=100)] == bodies


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    """Yields a broker whose clock the test may move, with a topic T."""
    with LocalBroker() as broker:
        broker.create_topic("T", queues=1)
        yield broker


def test_a_query_takes_times(own_broker: LocalBroker) -> None:
    """Covers messages of one second, which is one time in the index."""
    for text in ("a", "b", "c"):
        own_broker.send("T", text, keys="k")
        own_broker.advance_clock(0.25)
    first, second, third = (each.store_timestamp for each in own_broker.messages("T"))

    def found(*words: str) -> str:
        shown = run(own_broker, "message", "query", "T", "k", "--json", *words)
        return "".join(json.loads(line)["body"] for line in shown.stdout.splitlines())

    assert found("--from", second.isoformat()) == "bc"
    assert found("--to", second.isoformat()) == "ab"
    assert found("--from", second.isoformat(), "--to", second.isoformat()) == "b"
    assert found("--from", (third + timedelta(seconds=1)).isoformat()) == ""
    [message] = own_broker.query("T", "k", until=first)
    assert message.text == "a"
    with pytest.raises(LocalBrokerError, match="has no time zone"):
        own_broker.query("T", "k", since=first.replace(tzinfo=None))
    none = run(own_broker, "message", "query", "T", "k", "--to", "1970-01-01T00:00Z")
    assert (none.exit_code, "was stored in this time" in none.stderr) == (1, True)
    for words in (["--from", "tomorrow"], ["--to", "2026-01-01"], _EXCHANGED):
        done = run(own_broker, "message", "query", "T", "k", *words)
        assert done.exit_code == 2, words

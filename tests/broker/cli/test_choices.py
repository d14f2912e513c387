"""Queues, times and lines as commands take them, and queues that an update hides."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.support.broker.shell import ended, popen, run
from tests.support.time_limits import WAIT_SECONDS_MAX

_numbers = count()


@pytest.fixture
def topic(rocketpy_broker: LocalBroker) -> str:
    """Returns the name of a topic with two queues."""
    name = f"choices-{next(_numbers)}"
    rocketpy_broker.create_topic(name, queues=2)
    return name


def bodies(broker: LocalBroker, *words: str) -> list[str]:
    """Returns the bodies that `tail` or `dlq list` prints."""
    shown = run(broker, *words, "--json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    return [json.loads(line)["body"] for line in shown.stdout.splitlines()]


def send_a_to_d(broker: LocalBroker, topic: str) -> str:
    """Sends a and b to queue 0, c and d to queue 1; returns the store time of c."""
    broker.send(topic, ["a", "b"], queue_id=0)
    before = broker.messages(topic)[-1].store_timestamp
    while True:  # A store time has milliseconds.
        broker.send(topic, "c", queue_id=1)
        after = broker.messages(topic)[-1].store_timestamp
        if after > before:
            break
        broker.delete_topic(topic)
        broker.create_topic(topic, queues=2)
        broker.send(topic, ["a", "b"], queue_id=0)
    broker.send(topic, "d", queue_id=1)
    return after.isoformat()


def test_tail_shows_chosen_queues(rocketpy_broker: LocalBroker, topic: str) -> None:
    send_a_to_d(rocketpy_broker, topic)
    tail = ("message", "tail", topic)
    assert bodies(rocketpy_broker, *tail, "--queue", "1") == ["c", "d"]
    assert bodies(rocketpy_broker, *tail, "--queue", "1", "-n", "1") == ["d"]
    assert bodies(rocketpy_broker, *tail, "--queue", "0", "--from", "earliest") == ["a", "b"]
    both = ("--queue", "0", "--queue", "1")
    assert bodies(rocketpy_broker, *tail, *both) == ["a", "b", "c", "d"]
    shown = run(rocketpy_broker, *tail, "--queue", "2")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"queue_id is 2, accepted is the id of one of the 2 read queues of topic {topic!r}" in (
        shown.stderr
    )


def test_tail_begins_at_a_time(rocketpy_broker: LocalBroker, topic: str) -> None:
    time = send_a_to_d(rocketpy_broker, topic)
    tail = ("message", "tail", topic, "--from")
    assert bodies(rocketpy_broker, *tail, time) == ["c", "d"]
    assert bodies(rocketpy_broker, *tail, time, "--queue", "0") == []
    assert bodies(rocketpy_broker, *tail, time, "-n", "1") == ["c"]
    assert bodies(rocketpy_broker, *tail, "1960-01-01T00:00:00Z") == ["a", "b", "c", "d"]
    assert bodies(rocketpy_broker, *tail, "9999-12-31T23:59:59Z") == []
    for text in ("2026-05-01T08:00:00", "yesterday", "", "1777622400000"):
        shown = run(rocketpy_broker, *tail, text)
        assert (shown.exit_code, "--from" in shown.stderr) == (2, True)


def test_tail_follows_one_queue_from_a_time(rocketpy_broker: LocalBroker, topic: str) -> None:
    time = send_a_to_d(rocketpy_broker, topic)
    words = ("message", "tail", topic, "--from", time, "--queue", "1", "--follow", "--json")
    process = popen(rocketpy_broker, *words)
    try:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["body"] for _ in range(2)]
        rocketpy_broker.send(topic, "elsewhere", queue_id=0)
        rocketpy_broker.send(topic, "e", queue_id=1)
        assert [*first, json.loads(process.stdout.readline())["body"]] == ["c", "d", "e"]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS_MAX)


def test_r03_dead_letters_are_chosen_by_queue_and_time(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    dead_letters, group = f"%DLQ%{topic}", topic
    rocketpy_broker.create_topic(dead_letters, queues=2)
    time = send_a_to_d(rocketpy_broker, dead_letters)
    words = ("dlq", "list", group)
    assert bodies(rocketpy_broker, *words, "--queue", "0") == ["a", "b"]
    assert bodies(rocketpy_broker, *words, "--from", time) == ["c", "d"]
    assert bodies(rocketpy_broker, *words, "--from", time, "--offset", "1") == ["d"]
    shown = run(rocketpy_broker, *words, "--from", time, "--queue", "0")
    assert "has no dead letters with these options" in shown.stderr
    resend = ("dlq", "resend", group, "--to", topic)
    assert run(rocketpy_broker, *resend, "--from", time, "--queue", "1").exit_code == 0
    assert [each.text for each in rocketpy_broker.messages(topic)] == ["c", "d"]
    assert run(rocketpy_broker, *resend, "--all", "--queue", "1").exit_code == 2
    assert run(rocketpy_broker, "dlq", "list", "--queue", "1").exit_code == 2


LINES = 'one\n\ntwo \r\n{"body": 1}\nlast'
BODIES = ["one", "two ", '{"body": 1}', "last"]


@pytest.mark.parametrize("words", [(), ("--lines", "-"), ("--lines", "{file}")])
def test_each_line_of_a_pipe_or_a_file_is_a_message(
    rocketpy_broker: LocalBroker, topic: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "lines"
    path.write_text(LINES, newline="")
    given = [word.format(file=path) for word in words]
    about = ("--tag", "T", "--key", "k", "--property", "shop=3", "--queue-id", "1")
    shown = run(rocketpy_broker, "message", "send", topic, *given, *about, stdin=LINES)
    assert (shown.exit_code, shown.output) == (0, f"sent 4 messages to {topic}\n")
    messages = rocketpy_broker.messages(topic)
    assert [message.text for message in messages] == BODIES
    assert {(each.tags, each.keys, each.properties["shop"]) for each in messages} == {
        ("T", ("k",), "3")
    }


def test_a_body_is_read_from_standard_input(rocketpy_broker: LocalBroker, topic: str) -> None:
    content = b"\x00 two\nlines \xff\n"
    words = ("message", "send", topic, "--body", "-")
    assert run(rocketpy_broker, *words, stdin=content).exit_code == 0
    assert [message.body for message in rocketpy_broker.messages(topic)] == [content]
    shown = run(rocketpy_broker, *words, stdin=b"x" * ((4 << 20) + 1))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "is too long for a body, limit 4194304 bytes" in shown.stderr
    assert len(rocketpy_broker.messages(topic)) == 1


def test_lines_that_cannot_be_sent_are_named_before_any_is_sent(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    text = b"fine\n" + b"x" * ((4 << 20) + 1) + b"\n"
    shown = run(rocketpy_broker, "message", "send", topic, stdin=text)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "line 2: the body has 4194305 bytes" in shown.stderr
    assert rocketpy_broker.messages(topic) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--body", "a", "--lines", "-"),
        ("--file", "-", "--lines", "-"),
        ("--body", "a", "--file", "-"),
    ],
)
def test_one_source_of_bodies_is_accepted(
    rocketpy_broker: LocalBroker, topic: str, words: tuple[str, ...]
) -> None:
    shown = run(rocketpy_broker, "message", "send", topic, *words, stdin="b\n")
    assert (shown.exit_code, "give one of --body, --lines and --file" in shown.stderr) == (2, True)
    nothing = run(rocketpy_broker, "message", "send", topic, stdin="")
    assert (nothing.exit_code, "give one of --body" in nothing.stderr) == (2, True)
    assert rocketpy_broker.messages(topic) == []


@pytest.mark.parametrize("option", ["--file", "--lines"])
def test_a_file_without_a_name_is_no_pipe(
    rocketpy_broker: LocalBroker, topic: str, option: str
) -> None:
    shown = run(rocketpy_broker, "message", "send", topic, option, "", stdin='{"body": "b"}\n')
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "the name of the file is empty" in shown.stderr
    assert rocketpy_broker.messages(topic) == []


def test_an_update_to_fewer_queues_says_which_messages_it_hides(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send_a_to_d(rocketpy_broker, topic)
    update = ("topic", "update", topic)
    shown = run(rocketpy_broker, *update, "--queues", "1")
    assert shown.stdout == f"topic {topic} has 1 queue to read and 1 to write\n"
    assert f"2 messages are hidden, not deleted: topic {topic} now has fewer" in shown.stderr
    assert f"`rocketpy topic update {topic} --read-queues 2`" in shown.stderr
    assert [each.text for each in rocketpy_broker.messages(topic)] == ["a", "b"]
    shown = run(rocketpy_broker, *update, "--queues", "2")
    assert shown.stderr == ""
    assert [each.text for each in rocketpy_broker.messages(topic)] == ["a", "b", "c", "d"]
    shown = run(rocketpy_broker, *update, "--read-queues", "1", "--json")
    assert (json.loads(shown.stdout)["hiddenMessages"], shown.stderr) == (2, "")
    shown = run(rocketpy_broker, *update, "--read-queues", "1", "--json")
    assert "hiddenMessages" not in json.loads(shown.stdout)


def test_every_command_prints_json_on_one_line(
    rocketpy_broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        broker.create_topic(topic)
        broker.send(topic, "a")
    shown = run(rocketpy_broker, "topic", "describe", topic, "--json").stdout
    assert shown.count("\n") == 1
    checked = ended("store", "check", str(tmp_path / "store"), "--json")
    checked.check_returncode()
    assert checked.stdout.count("\n") == 1
    assert json.loads(checked.stdout)["records"] == 1

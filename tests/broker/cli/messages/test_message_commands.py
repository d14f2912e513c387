"""`rocketpy message …`: send, tail, query and view, as a person uses them."""

from __future__ import annotations

import base64
import json
import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Thread

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.messages.lines import LINE_BYTES_MAX, MessageLineError, open_lines
from tests.support.broker.shell import run


def lines_of(broker: LocalBroker, topic: str, *words: str) -> list[list[str]]:
    """Returns the columns of each line that `message tail` prints."""
    done = run(broker, "message", "tail", topic, *words)
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.output.splitlines()]


def objects_of(broker: LocalBroker, topic: str, *words: str) -> list[dict[str, object]]:
    done = run(broker, "message", "tail", topic, "--json", *words)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def test_one_message_is_sent_and_its_place_is_told(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    words = ["--body", "first", "--tag", "new", "--key", "k1", "--key", "k2"]
    words += ["--property", "shop=3", "--property", "formula=a=b", "--queue-id", "5"]
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, *words)
    [message] = rocketpy_broker.messages(rocketpy_topic)
    assert done.output == (
        f"sent 1 message to {rocketpy_topic}: queue 5, offset 0, id {message.msg_id}\n"
    )
    assert (message.text, message.tags, message.keys) == ("first", "new", ("k1", "k2"))
    assert message.properties == {"shop": "3", "formula": "a=b"}


def test_what_was_sent_is_told_in_json(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    words = ["message", "send", rocketpy_topic, "--body", "", "--queue-id", "1", "--json"]
    told = json.loads(run(rocketpy_broker, *words).output)
    [message] = rocketpy_broker.messages(rocketpy_topic)
    assert told == {
        "topic": rocketpy_topic,
        "sent": 1,
        "queueId": 1,
        "queueOffset": 0,
        "msgId": message.msg_id,
    }


FILE = [
    {"body": "a", "tags": "T", "keys": ["k"], "properties": {"p": "1"}, "queueId": 2},
    {"bodyBase64": base64.b64encode(b"\xff\x00").decode(), "tags": None},
    {"body": "two\nlines"},
]


@pytest.mark.parametrize("source", ["file", "standard input"])
def test_the_messages_of_a_file_are_sent(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, tmp_path: Path, source: str
) -> None:
    text = "\n\n".join(map(json.dumps, FILE))
    path = tmp_path / "messages.jsonl"
    path.write_text(text, encoding="utf-8")
    name = "-" if source == "standard input" else str(path)
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", name, stdin=text)
    assert done.output == f"sent 3 messages to {rocketpy_topic}\n"
    messages = sorted(rocketpy_broker.messages(rocketpy_topic), key=lambda each: each.body)
    assert [message.body for message in messages] == [b"a", b"two\nlines", b"\xff\x00"]
    assert (messages[0].tags, messages[0].keys, messages[0].queue_id) == ("T", ("k",), 2)
    assert messages[0].properties == {"p": "1"}


def test_what_tail_prints_can_be_sent_again(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    text = "\n".join(map(json.dumps, FILE))
    for _ in range(2):
        run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=text)
        words = ["message", "tail", rocketpy_topic, "--json", "-n", "3"]
        text = run(rocketpy_broker, *words).output
    first, second = (
        [(each.body, each.tags, each.keys, each.properties) for each in messages]
        for messages in (
            rocketpy_broker.messages(rocketpy_topic)[:3],
            rocketpy_broker.messages(rocketpy_topic)[3:],
        )
    )
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_an_empty_file_sends_nothing(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin="\n\n")
    assert (done.exit_code, done.output) == (0, f"sent 0 messages to {rocketpy_topic}\n")


BAD_LINES = [
    ("{", "is no JSON"),
    ("[" * 100_000, "nested too deeply"),
    ("[]", "it is [], accepted is a JSON object"),
    ("{}", "needs one of body and bodyBase64"),
    ('{"body": "a", "bodyBase64": "YQ=="}', "needs one of body and bodyBase64"),
    ('{"body": 1}', "body is 1, accepted is a text"),
    ('{"body": "\\ud800"}', "body is not valid Unicode"),
    ('{"bodyBase64": "a"}', "bodyBase64 is no base64"),
    ('{"body": "a", "tag": "T"}', "unknown field 'tag'; accepted are body, bodyBase64, tags"),
    ('{"body": "a", "tags": ["T"]}', 'tags is ["T"], accepted is a text'),
    ('{"body": "a", "keys": "k"}', 'keys is "k", accepted is a list of texts'),
    ('{"body": "a", "keys": [1]}', "keys is [1], accepted is a list of texts"),
    ('{"body": "a", "properties": []}', "properties is [], accepted is an object of texts"),
    ('{"body": "a", "properties": {"p": 1}}', "property 'p' is 1, accepted is a text"),
    ('{"body": "a", "properties": {"": "x"}}', "property name '' is empty"),
    ('{"body": "a", "queueId": true}', "queueId is true, accepted is a whole number"),
    ('{"body": "a", "queueId": 8}', "is not in 0..7"),
    ('{"body": "a", "delayLevel": "1"}', 'delayLevel is "1", accepted is a whole number'),
    ('{"body": "a", "delayLevel": -1}', "delay level -1 is negative"),
    ('{"body": "a", "deliverAt": 1}', "deliverAt is 1, accepted is a text"),
    ('{"body": "a", "deliverAt": "2026-05-01"}', "has no time zone"),
    ('{"body": "%s"}' % ("x" * (4 << 20) + "x"), "the body has 4194305 bytes"),
]


@pytest.mark.parametrize(("line", "said"), BAD_LINES, ids=[said for _, said in BAD_LINES])
def test_a_bad_line_is_named_before_anything_is_sent(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, line: str, said: str
) -> None:
    text = f'{{"body": "good"}}\n\n{line}\n{{"body": "good"}}\n'
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=text)
    assert done.exit_code == 1
    assert done.stderr.startswith("rocketpy: nothing of - was sent: line 3: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert rocketpy_broker.messages(rocketpy_topic) == []


def test_many_bad_lines_are_named_up_to_a_limit(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    text = "x\n" * 1000
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=text)
    assert "line 10: is no JSON" in done.stderr
    assert "line 11:" not in done.stderr
    assert done.stderr.endswith("there are more such lines\n")


def test_a_line_beyond_the_limit_is_named(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "messages.jsonl"
    with path.open("wb") as file:
        file.write(b'{"body": "a"}\n')
        # A line of zeros, which take no space on the disk.
        file.seek(LINE_BYTES_MAX + 1, os.SEEK_CUR)
        file.write(b'\n{"body": "b"}\nx')
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", str(path))
    assert "line 2: is too long, limit 67108863 bytes\n  line 4: is no JSON" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "give one of --body, --lines and --file"),
        (["--body", "a", "--file", "-"], 2, "give one of --body, --lines and --file"),
        (["--file", "-", "--tag", "T"], 2, "with --file, each line has its tags, keys, properties"),
        (["--body", "a", "--property", "shop"], 2, "'shop' is not of the form NAME=VALUE"),
        (["--body", "a", "--property", "=3"], 2, "'=3' is not of the form NAME=VALUE"),
        (["--body", "a", "--property", "p=1", "--property", "p=2"], 2, "'p' is given twice"),
        (["--body", "a", "--queue-id", "-1"], 2, "--queue-id"),
        (["--body", "a", "--queue-id", "8"], 1, "queue id 8"),
        (["--body", "a", "--tag", "a\x01"], 1, "separator"),
        (["--body", "x" * ((4 << 20) + 1)], 1, "the body has 4194305 bytes"),
        (["--file", "/nowhere"], 1, "/nowhere cannot be read (No such file or directory)"),
        (["--file", "/"], 1, "/ cannot be read (Is a directory)"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_refused_message_is_explained(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: list[str], code: int, said: str
) -> None:
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, *words)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert rocketpy_broker.messages(rocketpy_topic) == []


@pytest.mark.parametrize(
    "words",
    [["send", "Nowhere", "--body", "a"], ["tail", "Nowhere"], ["query", "Nowhere", "key"]],
)
def test_an_unknown_topic_is_named(rocketpy_broker: LocalBroker, words: list[str]) -> None:
    done = run(rocketpy_broker, "message", *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("rocketpy: topic 'Nowhere' does not exist")
    assert done.stderr.count("\n") == 1


def test_tail_shows_the_last_ten_over_all_queues(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, [str(number) for number in range(30)])
    rocketpy_broker.send(rocketpy_topic, "last", tags="T", keys=["k1", "k2"], queue_id=3)
    shown = lines_of(rocketpy_broker, rocketpy_topic)
    assert [line[5] for line in shown] == [*map(str, range(21, 30)), "last"]
    [last] = rocketpy_broker.messages(rocketpy_topic)[-1:]
    assert shown[-1][1:] == ["3", str(last.queue_offset), "T", "k1,k2", "last"]
    assert shown[0][3:5] == ["-", "-"]


def test_tail_from_the_earliest_shows_all_or_the_first(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, [str(number) for number in range(30)])
    words = ["--from", "earliest"]
    assert len(lines_of(rocketpy_broker, rocketpy_topic, *words)) == 30
    first = lines_of(rocketpy_broker, rocketpy_topic, *words, "-n", "2")
    assert [line[5] for line in first] == ["0", "1"]


def test_tail_in_json_tells_everything(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(
        rocketpy_topic, "one\ntwo ü", tags="T", keys=["k1"], properties={"p": "1"}, queue_id=4
    )
    rocketpy_broker.send(rocketpy_topic, b"\x00\xff", queue_id=4)
    [first, second] = rocketpy_broker.messages(rocketpy_topic)
    [text, binary] = objects_of(rocketpy_broker, rocketpy_topic)
    assert text == {
        "topic": rocketpy_topic,
        "queueId": 4,
        "queueOffset": 0,
        "msgId": first.msg_id,
        "offsetMsgId": first.offset_msg_id,
        "bornTimestamp": f"{first.born_timestamp:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "storeTimestamp": f"{first.store_timestamp:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "reconsumeTimes": 0,
        "tags": "T",
        "keys": ["k1"],
        "properties": {"p": "1"},
        "body": "one\ntwo ü",
    }
    assert (binary["bodyBase64"], binary["tags"], binary["keys"]) == ("AP8=", None, [])
    assert "body" not in binary
    assert binary["queueOffset"] == second.queue_offset == 1


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"one\ntwo\tthree", "one\\ntwo\\tthree"),
        (b"\x1b[31mred", "base64:" + base64.b64encode(b"\x1b[31mred").decode()),
        (b"\xff", "base64:/w=="),
        (b"", "-"),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 200 + "… (201 bytes)"),
        ("ü" * 201, "ü" * 200 + "… (402 bytes)"),
        (b"\xff" * 300_000, "base64:" + "/" * 193 + "… (300000 bytes)"),
    ],
)
def test_a_body_takes_one_line_that_is_safe_to_print(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, body: bytes | str, shown: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, body, tags="a\tb")
    assert lines_of(rocketpy_broker, rocketpy_topic)[0][3:] == ["a\\tb", "-", shown]


def test_long_texts_are_cut_and_shown_whole_on_request(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, b"b" * 5_000, tags="t" * 300, keys="k" * 300)
    [cut] = lines_of(rocketpy_broker, rocketpy_topic)
    assert cut[3] == "t" * 200 + "… (300 characters)"
    assert cut[4] == "k" * 200 + "… (300 characters)"
    assert cut[5] == "b" * 200 + "… (5000 bytes)"
    assert lines_of(rocketpy_broker, rocketpy_topic, "--whole")[0][5] == "b" * 5_000
    rocketpy_broker.send(rocketpy_topic, b"\xff" * 900)
    whole = lines_of(rocketpy_broker, rocketpy_topic, "--whole", "-n", "1")[0]
    assert whole[5] == "base64:" + "/" * 1_200
    assert objects_of(rocketpy_broker, rocketpy_topic)[0]["body"] == "b" * 5_000


def test_following_and_an_end_contradict_each_other(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    words = ["message", "tail", rocketpy_topic, "--from", "earliest", "-n", "1", "-f"]
    assert run(rocketpy_broker, *words).exit_code == 2


def test_messages_are_found_by_key_and_by_id(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b"], keys="k", properties={"p": "[bold]"})
    queried = run(rocketpy_broker, "message", "query", rocketpy_topic, "k", "--json")
    found = [json.loads(line) for line in queried.output.splitlines()]
    assert [each["body"] for each in found] == ["a", "b"]
    shown = run(rocketpy_broker, "message", "query", rocketpy_topic, "k", "--count", "2").output
    assert "body\ta\n\nfield\tvalue\n" in shown
    assert "property p\t[bold]\n" in shown
    viewed = run(rocketpy_broker, "message", "view", found[1]["offsetMsgId"], "--json")
    assert json.loads(viewed.output) == found[1]


def test_messages_are_found_by_tag(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b"], keys="k", tags="paid")
    rocketpy_broker.send(rocketpy_topic, "c", keys="paid", tags="open")
    line = ["message", "query", rocketpy_topic]
    found = run(rocketpy_broker, *line, "--tag", "paid", "--json").output.splitlines()
    assert [json.loads(each)["body"] for each in found] == ["a", "b"]
    newest = run(rocketpy_broker, *line, "--tag", "paid", "--count", "1", "--json").output
    assert json.loads(newest)["body"] == "b"
    none = run(rocketpy_broker, *line, "--tag", "lost")
    assert none.exit_code == 1
    assert none.stderr.startswith("rocketpy: no message with this tag is in the topic. ")
    for words in ([], ["k", "--tag", "paid"]):
        refused = run(rocketpy_broker, *line, *words)
        assert refused.exit_code == 2
        assert "give either a key or --tag" in refused.stderr


def test_what_is_not_found_is_said(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    queried = run(rocketpy_broker, "message", "query", rocketpy_topic, "nobody")
    assert queried.exit_code == 1
    assert queried.stderr.startswith("rocketpy: no message with this key is in the topic. ")
    viewed = run(rocketpy_broker, "message", "view", "xyz")
    assert viewed.exit_code == 1
    assert "offset_msg_id is 'xyz'" in viewed.stderr


def test_control_characters_of_any_kind_are_escaped_in_json(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, "x", tags="a\u009b31m\u202e\U000e0001")
    shown = run(rocketpy_broker, "message", "tail", rocketpy_topic, "--json").output
    assert shown.rstrip("\n").isprintable()
    assert json.loads(shown)["tags"] == "a\u009b31m\u202e\U000e0001"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"body": "x", "keys": ["a b"]}', "key 'a b' has a blank"),
        ('{"body": "x", "properties": {"UNIQ_KEY": ""}}', "property UNIQ_KEY is empty"),
    ],
)
def test_what_would_become_something_else_is_refused(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, line: str, said: str
) -> None:
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=line)
    assert done.exit_code == 1
    assert said in done.output


@pytest.mark.parametrize("source", ["standard input", "pipe"])
def test_input_that_is_too_much_to_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    text = '{"body": "x"}\n' * 10
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    path, name = "-", source
    if source == "pipe":
        path = name = str(tmp_path / "pipe")
        os.mkfifo(path)
        Thread(target=Path(path).write_text, args=[text], daemon=True).start()
    said = f"{name} is too long to be checked before the send, limit 139 bytes"
    with pytest.raises(MessageLineError, match=said), open_lines(path, copied_bytes_max=139):
        pass


def test_messages_that_are_too_large_for_one_answer_come_in_several(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    for number in range(10):
        rocketpy_broker.send(rocketpy_topic, bytes([97 + number]) * (4 << 20), keys="k")
    shown = run(rocketpy_broker, "message", "query", rocketpy_topic, "k", "--count", "64", "--json")
    assert shown.exit_code == 0
    bodies = [json.loads(line)["body"][0] for line in shown.output.splitlines()]
    assert bodies == list("abcdefghij")
    assert len(rocketpy_broker.query(rocketpy_topic, "k")) == 10

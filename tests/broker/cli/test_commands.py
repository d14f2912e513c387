"""The command line, as a person uses it."""

from __future__ import annotations

import json
import re
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.runtime.time_format import time_text
from tests.broker.embedded.test_client_calls import commit
from tests.support.broker.shell import run


def test_topics_are_created_listed_and_deleted(rocketpy_broker: LocalBroker) -> None:
    created = run(rocketpy_broker, "topic", "create", "cli-topic", "--queues", "3")
    assert created.output == "created topic cli-topic with 3 queues\n"
    assert "cli-topic" in run(rocketpy_broker, "topic", "list").output
    assert "cli-topic" in run(rocketpy_broker, "topic", "list", "--system").output
    assert run(rocketpy_broker, "topic", "delete", "cli-topic").exit_code == 0
    assert "cli-topic" not in run(rocketpy_broker, "topic", "list").output


def test_the_version_is_the_distribution_s() -> None:
    printed = CliRunner().invoke(app, ["--version"])
    assert (printed.exit_code, printed.output) == (0, f"rocketpy {version('pyspark-rocketpy')}\n")


@pytest.mark.parametrize("words", [[], ["topic"], ["message", "send"], ["broker", "start"]])
def test_help_has_a_short_name(words: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*words, word]) for word in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)


def test_lag_shows_every_queue(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("cli-lag", queues=2)
    shown = run(rocketpy_broker, "lag", "cli-lag", "--group", "g")
    assert shown.exit_code == 0
    assert shown.output.count("none") == 2


def test_n03_a_topic_is_changed_and_shown_with_all_its_settings(
    rocketpy_broker: LocalBroker,
) -> None:
    words = ["--queues", "3", "--attribute", "message.type=FIFO", "--order"]
    assert run(rocketpy_broker, "topic", "create", "cli-change", *words).exit_code == 0
    words = ["--write-queues", "2", "--perm", "4", "--attribute", "reserve.time=5"]
    changed = run(rocketpy_broker, "topic", "update", "cli-change", *words)
    assert changed.output == "topic cli-change has 3 queues to read and 2 to write\n"
    expected = {
        "topic": "cli-change",
        "readQueueNums": 3,
        "writeQueueNums": 2,
        "perm": 4,
        "order": True,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "attributes": {"message.type": "FIFO", "reserve.time": "5"},
    }
    shown = run(rocketpy_broker, "topic", "show", "cli-change", "--json")
    found = json.loads(shown.output)
    assert {name: found[name] for name in expected} == expected
    table = run(rocketpy_broker, "topic", "show", "cli-change").output
    assert "perm\t4 (R--)\norder\tyes\n" in table
    assert "attribute message.type\tFIFO\n" in table
    words = ["--remove-attribute", "reserve.time", "--no-order", "--queues", "5"]
    assert run(rocketpy_broker, "topic", "update", "cli-change", *words).exit_code == 0
    found = rocketpy_broker.topic("cli-change")
    assert (found.order, found.write_queue_nums, found.message_type) == (False, 5, "FIFO")
    assert found.attributes == {"message.type": "FIFO"}
    listed = run(rocketpy_broker, "topic", "list").output
    assert "cli-change\t5\t5\t4\tFIFO\n" in listed


def test_n03_a_topic_is_described_with_its_queues_and_groups(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("cli-described", queues=2)
    rocketpy_broker.send("cli-described", ["a", "b"], queue_id=1)
    commit(rocketpy_broker, "cli-described", "cli-reader", 0)
    told = json.loads(run(rocketpy_broker, "topic", "describe", "cli-described", "--json").output)
    assert (told["messages"], told["groups"]) == (2, ["cli-reader"])
    empty, filled = told["queues"]
    assert (empty["messages"], empty["lastStoreTimestamp"]) == (0, None)
    assert (filled["minOffset"], filled["maxOffset"], filled["messages"]) == (0, 2, 2)
    last = rocketpy_broker.messages("cli-described")[-1].store_timestamp
    assert filled["lastStoreTimestamp"] == time_text(last)
    shown = run(rocketpy_broker, "topic", "describe", "cli-described").output
    assert f"\n1\t0\t2\t2\t{filled['lastStoreTimestamp']}\n" in shown
    assert shown.endswith("\nconsumer group\ncli-reader\n")


def test_changes_of_topics_are_told_as_json(rocketpy_broker: LocalBroker) -> None:
    words = ["topic", "update", "cli-json", "--queues", "2"]
    assert run(rocketpy_broker, *words).exit_code == 1
    told = json.loads(run(rocketpy_broker, *words, "--create", "--json").output)
    assert (told["topic"], told["writeQueueNums"]) == ("cli-json", 2)
    told = json.loads(run(rocketpy_broker, "topic", "delete", "cli-json", "--json").output)
    assert told == {"topic": "cli-json", "deleted": True}
    told = json.loads(run(rocketpy_broker, "topic", "create", "cli-json", "--json").output)
    assert told["readQueueNums"] == 8
    told = json.loads(run(rocketpy_broker, "clean", "--json").output)
    assert told.keys() == {"removedSegments", "logBeginOffset", "waitingSegments"}
    told = json.loads(run(rocketpy_broker, "clean", "--unused-topics", "--json").output)
    assert told == {"removedTopics": []}
    told = json.loads(run(rocketpy_broker, "health", "--json").output)
    assert told["status"] == "SERVING"


def test_lag_without_a_group_shows_every_group_with_progress(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("cli-lags", queues=1)
    alone = run(rocketpy_broker, "lag", "cli-lags")
    assert alone.exit_code == 0
    assert "no consumer group has progress in topic 'cli-lags' yet" in alone.output
    rocketpy_broker.send("cli-lags", ["a", "b", "c"])
    for group, offset in [("g2", 3), ("g1", 1)]:
        commit(rocketpy_broker, "cli-lags", group, offset)
    told = json.loads(run(rocketpy_broker, "lag", "cli-lags", "--json").output)
    assert told == {
        "topic": "cli-lags",
        "groups": [{"consumerGroup": "g1", "lag": 2}, {"consumerGroup": "g2", "lag": 0}],
    }
    assert "g1\t2\ng2\t0\n" in run(rocketpy_broker, "lag", "cli-lags").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a setting to change"),
        (["--attribute", "x"], "'x' is not of the form NAME=VALUE"),
        (["--attribute", "=x"], "'=x' is not of the form NAME=VALUE"),
        (["--attribute", "a=1", "--attribute", "a=2"], "'a' is given twice"),
    ],
)
def test_n03_a_wrong_update_is_wrong_use(
    rocketpy_broker: LocalBroker, words: list[str], said: str
) -> None:
    result = run(rocketpy_broker, "topic", "update", "T", *words)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topic", "update", "Nowhere", "--perm", "6"], "'Nowhere' does not exist"),
        (["topic", "show", "Nowhere"], "'Nowhere' does not exist"),
        (["topic", "create", "T", "--attribute", "a=b"], "unsupported key: 'a'"),
        (["topic", "create", "T", "--perm", "9"], "is 9, accepted is 1 to 7"),
        (["lag", "Nowhere"], "'Nowhere' does not exist"),
        (["topic", "create", "bad name"], "topic name 'bad name' is illegal"),
        (["topic", "create", "T", "--queues", "0"], "accepted is 1 to"),
        (["topic", "delete", "Nowhere"], "'Nowhere' does not exist"),
        (["lag", "Nowhere", "--group", "g"], "'Nowhere' does not exist"),
    ],
)
def test_a_refusal_is_one_line(rocketpy_broker: LocalBroker, words: list[str], said: str) -> None:
    result = run(rocketpy_broker, *words)
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["broker", "--port", "70000"],
        ["broker", "--flush", "NEVER"],
        ["broker", "--consume-queue-file-bytes", "21"],
        ["broker", "--commit-log-segment-bytes", "1"],
        ["broker", "--message-delay-level", "1s 5x"],
    ],
)
def test_a_wrong_option_of_the_broker_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


def test_s13_topic_stats_shows_what_was_put_and_got(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("cli-stats", queues=1)
    rocketpy_broker.send("cli-stats", ["a", "b"], queue_id=0)
    shown = run(rocketpy_broker, "topic", "stats", "cli-stats", "--name", "TOPIC_PUT_NUMS")
    assert shown.output.splitlines()[1].split("\t")[:3] == ["cli-stats", "TOPIC_PUT_NUMS", "2"]
    told = run(rocketpy_broker, "topic", "stats", "cli-stats", "--json").output.splitlines()
    [item] = [each for each in map(json.loads, told) if each["name"] == "TOPIC_PUT_NUMS"]
    assert (item["key"], item["value"]) == ("cli-stats", 2)
    assert item["day"].keys() == {"sum", "tps", "avgpt"}
    [found] = [
        each for each in rocketpy_broker.statistics("cli-stats") if each.name == "TOPIC_PUT_NUMS"
    ]
    assert (found.value, found.key) == (2, "cli-stats")
    nothing = run(rocketpy_broker, "topic", "stats", "cli-no-stats")
    assert nothing.stderr == "rocketpy: the broker has no such statistics since its start\n"
    wrong = run(rocketpy_broker, "topic", "stats", "--name", "PUTS")
    assert (wrong.exit_code, "name is 'PUTS'" in wrong.output) == (1, True)


def test_s13_stats_tells_staged_bytes_and_no_internal_topics_unless_asked(
    rocketpy_broker: LocalBroker,
) -> None:
    rocketpy_broker.create_topic("cli-later", queues=1)
    rocketpy_broker.send("cli-later", "a", delay_level=18)
    shown = run(rocketpy_broker, "stats").output
    assert re.search(r"^staged bytes\t[\d,]+$", shown, re.MULTILINE)
    assert re.search(r"^put latency ms, 99.9 %\t[\d,]+$", shown, re.MULTILINE)
    speeds = r"^put tps, 10 s 60 s 600 s\t(-|[\d.]+) (-|[\d.]+) (-|[\d.]+)$"
    assert re.search(speeds, shown, re.MULTILINE)
    assert "SCHEDULE_TOPIC_XXXX" not in shown
    assert "SCHEDULE_TOPIC_XXXX" in run(rocketpy_broker, "stats", "--system").output
    told = json.loads(run(rocketpy_broker, "stats", "--json").output)
    assert told["stagedBytesMax"] == 32 << 30

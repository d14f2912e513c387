"""`rocketpy group`, as a person uses it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.groups import consumer, heartbeat, unregister
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.support.broker.shell import on_a_terminal, run

_numbers = itertools.count()


@pytest.fixture
def group(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> str:
    """Returns a group that has consumed one of three messages in queue 0 of the topic."""
    name = f"cli-group-{next(_numbers)}"
    rocketpy_broker.send(rocketpy_topic, ["a", "b", "c"], queue_id=0)
    assert len(rocketpy_broker.pull(rocketpy_topic, name, 1)) == 1
    return name


@pytest.fixture
def members(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> Iterator[BrokerConnection]:
    """Yields the connection of two members of the group."""
    subscription = groups_pb2.Subscription(topic=rocketpy_topic, expression="TagA || TagB")
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        for client_id in ("m1", "m2"):
            heartbeat(connection, client_id, consumers=[consumer(group, [subscription])])
        yield connection
        for client_id in ("m1", "m2"):
            unregister(connection, client_id, consumer_group=group)


def test_groups_are_listed(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str, members: object
) -> None:
    head, *rows = run(rocketpy_broker, "group", "list").stdout.splitlines()
    assert head == "consumer group\tmembers\ttype\tmodel\ttopics\tlag"
    expected = f"{group}\t2\tCONSUME_PASSIVELY\tCLUSTERING\t{rocketpy_topic}\t2"
    assert expected in rows
    assert not [row for row in rows if row.startswith("TOOLS_CONSUMER")]
    system = run(rocketpy_broker, "group", "list", "--system", "--json").stdout.splitlines()
    found = {each["consumerGroup"]: each for each in map(json.loads, system)}
    assert found["TOOLS_CONSUMER"]["consumeType"] is None
    assert found[group] == {
        "consumerGroup": group,
        "isConfigured": True,
        "members": 2,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "topicCount": 1,
        "topics": [rocketpy_topic],
        "lag": 2,
    }


def test_a_group_is_described(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str, members: object
) -> None:
    (message, *_) = rocketpy_broker.messages(rocketpy_topic)
    rocketpy_broker.send_back(message, group, delay_level=-1)
    shown = run(rocketpy_broker, "group", "describe", group).stdout
    assert "retryMaxTimes\t16\n" in shown
    assert "dead letters\t1\n" in shown
    assert f"\n{rocketpy_topic}\tTAG\tTagA || TagB\n" in shown
    assert f"\n{rocketpy_topic}\t8\t1\t2\n" in shown
    told = json.loads(run(rocketpy_broker, "group", "describe", group, "--json").stdout)
    assert [each["clientId"] for each in told["clients"]["consumers"]] == ["m1", "m2"]
    assert told["config"]["consumeEnable"] is True
    assert (told["lag"], told["deadLetters"], told["retryMessages"]) == (2, 1, 0)
    assert told["topics"][0]["committedQueues"] == 1
    subscriptions = told["clients"]["consumerData"]["subscriptions"]
    assert subscriptions[0]["expression"] == "TagA || TagB"


def test_a_group_is_created_and_changed(rocketpy_broker: LocalBroker) -> None:
    words = ["--retry-max-times", "3", "--no-consume", "--orderly"]
    made = run(rocketpy_broker, "group", "create", "cli-made", *words, "--json")
    assert json.loads(made.stdout)["consumeEnable"] is False
    again = run(rocketpy_broker, "group", "create", "cli-made")
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "'cli-made' exists already" in again.stderr
    changed = run(rocketpy_broker, "group", "update", "cli-made", "--consume").stdout
    assert "consumeEnable\tyes\n" in changed
    assert "retryMaxTimes\t3\n" in changed
    assert "consumeMessageOrderly\tyes\n" in changed
    nothing = run(rocketpy_broker, "group", "update", "cli-made")
    assert (nothing.exit_code, "name a setting to change" in nothing.stderr) == (2, True)
    missing = run(rocketpy_broker, "group", "update", "cli-missing", "--consume")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (1, True)
    words = ["group", "update", "cli-missing", "--consume", "--create"]
    assert run(rocketpy_broker, *words).exit_code == 0


def test_a_group_is_reset_and_told_queue_by_queue(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    words = ["group", "reset", group, "--topic", rocketpy_topic]
    dry = run(rocketpy_broker, *words, "--to", "latest", "--queue", "0", "--dry-run")
    assert dry.stdout == "queue\told offset\tnew offset\n0\t1\t3\n"
    assert dry.stderr == "rocketpy: nothing was changed\n"
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 2
    done = run(rocketpy_broker, *words, "--to", "latest", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (rows[0]["oldOffset"], rows[0]["newOffset"], rows[0]["dryRun"]) == (1, 3, False)
    assert (rows[1]["oldOffset"], rows[1]["newOffset"]) == (None, 0)
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 0
    assert run(rocketpy_broker, *words, "--to", "2020-01-01T00:00:00Z").exit_code == 0
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 3
    assert run(rocketpy_broker, *words, "--to", "2", "--queue", "0").exit_code == 0
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "7", "--queue", "0"], 1, "offset is 7, accepted is 0 to 3 in queue 0"),
        (["--to", "latest", "--queue", "99"], 1, "queue"),
        (["--to", "latest", "--queue", "-1"], 2, "--queue"),
        (["--to", "soon"], 2, "earliest, latest or an offset"),
        (["--to", "2026-05-01T08:00:00"], 2, "no time zone"),
        (["--to", "9" * 30], 2, "is no offset, limit 9223372036854775807"),
        (["--to", "-1"], 2, "--to"),
        ([], 2, "--to"),
    ],
)
def test_a_bad_reset_is_one_sentence_and_changes_nothing(
    rocketpy_broker: LocalBroker,
    rocketpy_topic: str,
    group: str,
    words: list[str],
    code: int,
    said: str,
) -> None:
    refused = run(rocketpy_broker, "group", "reset", group, "--topic", rocketpy_topic, *words)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert said in " ".join(refused.stderr.split())
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 2


def test_a_group_with_members_is_changed_by_force_only(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str, members: object
) -> None:
    words = ["group", "reset", group, "--topic", rocketpy_topic, "--to", "latest"]
    refused = run(rocketpy_broker, *words)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "has 2 members online; stop the group first, or force it" in refused.stderr
    assert run(rocketpy_broker, *words, "--force").exit_code == 0
    refused = run(rocketpy_broker, "group", "delete", group)
    assert (refused.exit_code, "2 members online" in refused.stderr) == (1, True)
    assert run(rocketpy_broker, "group", "delete", group, "--force").exit_code == 0


def test_a_group_is_deleted_with_its_topics(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    (message, *_) = rocketpy_broker.messages(rocketpy_topic)
    rocketpy_broker.send_back(message, group, delay_level=-1)
    done = run(rocketpy_broker, "group", "delete", group)
    assert done.stdout == f"deleted consumer group {group} and %RETRY%{group} and %DLQ%{group}\n"
    again = run(rocketpy_broker, "group", "delete", group)
    assert (again.exit_code, "does not exist" in again.stderr) == (1, True)
    run(rocketpy_broker, "group", "create", group)
    kept = run(rocketpy_broker, "group", "delete", group, "--keep-topics", "--json")
    assert json.loads(kept.stdout) == {"consumerGroup": group, "deletedTopics": []}


def test_a_terminal_is_asked_before_something_goes(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    words = ["group", "reset", group, "--topic", rocketpy_topic, "--to", "latest"]
    code, shown = on_a_terminal(rocketpy_broker, *words, answer="n\n")
    assert (code, "nothing was changed" in shown) == (1, True)
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 2
    code, shown = on_a_terminal(rocketpy_broker, *words, answer="\x04")
    assert (code, "rocketpy: nothing was changed" in shown) == (130, True)
    code, shown = on_a_terminal(rocketpy_broker, *words, answer="y\n")
    assert (code, "old offset" in shown) == (0, True)
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 0
    for words in (["group", "delete", group], ["topic", "delete", rocketpy_topic]):
        assert on_a_terminal(rocketpy_broker, *words, answer="n\n")[0] == 1
        code, shown = on_a_terminal(rocketpy_broker, *words, "--yes")
        assert (code, "[y/N]" in shown) == (0, False)
    assert rocketpy_topic not in rocketpy_broker.topics()


@pytest.mark.parametrize("verb", ["describe", "delete", "update"])
def test_an_unknown_or_illegal_group_is_refused_in_one_line(
    rocketpy_broker: LocalBroker, verb: str
) -> None:
    more = ["--consume"] if verb == "update" else []
    for name, said in (("nobody-here", "does not exist"), ("a b", "'a b'"), ("g" * 5_000, "1 to")):
        refused = run(rocketpy_broker, "group", verb, name, *more)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert said in refused.stderr

"""Aliases for mqadmin commands and options: their translation and their effect."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.cli.mqadmin.aliases import VERBS, NoTranslationError, translated
from rocketpy_broker.cli.mqadmin.other_names import NEAREST, OTHERS
from tests.support.broker.shell import run


def of(line: str) -> str:
    """Returns our command line for one of mqadmin's."""
    name, *words = line.split()
    return " ".join(translated(name, words))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topicList -n h:1", "topic list --endpoint h:1"),
        ("topicList --json", "topic list --json"),
        ("topicStatus -tT", "topic describe -- T"),
        (
            "updateTopic -t T -r 3 -w 4 -p 6 -o true -b h:1",
            (
                "topic update --create --read-queues 3 --write-queues 4 --perm 6 --order "
                "--endpoint h:1 -- T"
            ),
        ),
        ("deleteTopic -t T", "topic delete --yes -- T"),
        ("consumerProgress -g G", "lag --group G"),
        ("consumerProgress -g G -t T", "lag --group G -- T"),
        ("consumerProgress", "group list"),
        ("resetOffsetByTime -g G -t T -s now", "group reset --yes --topic T --to latest -- G"),
        ("resetOffsetByTime -g G -t T -s -1", "group reset --yes --topic T --to latest -- G"),
        (
            "resetOffsetByTime -g G -t T -s 1700000000123 -f true",
            "group reset --yes --topic T --to 2023-11-14T22:13:20.123000+00:00 --force -- G",
        ),
        (
            "resetOffsetByTime -g G -t T -s now -q 2 -o 17",
            "group reset --yes --topic T --queue 2 --to 17 -- G",
        ),
        ("queryMsgById -i A,B -t T", "message view --topic T -- A B"),
        ("queryMsgById -i A -s true", "message resend -- A"),
        ("queryMsgById -i A -s false", "message view -- A"),
        ("queryMsgByKey -t T -k K -m 5", "message query --count 5 -- T K"),
        ("queryMsgByKey -t T -k K -p K", "message query -- T K"),
        ("queryMsgByKey -t T -k A -p T -m 5", "message query --tag A --count 5 -- T"),
        ("queryMsgByUniqueKey -t T -i U", "message query -- T U"),
        ("queryMsgByOffset -t T -i 1 -o 2", "message view --topic T --queue 1 --offset 2"),
        ("printMsg -t T", "message tail --from earliest -- T"),
        ("consumeMessage -t T -g G -c 3", "message pull --group G --count 3 -- T"),
        ("consumeMessage -t T -c 3", "message tail --count 3 -- T"),
        (
            "sendMessage -t T -p hi -k K -c A -i 0",
            "message send --body hi --key K --tag A --queue-id 0 -- T",
        ),
        ("brokerStatus -b h:1", "broker status --endpoint h:1"),
        ("statsAll", "topic stats"),
        ("statsAll -t T", "topic stats -- T"),
        (
            "updateSubGroup -g G -s false -m true -d false -o true -q 2 -r 3 -i 0 -w 1 -a true",
            (
                "group update --create --no-consume --from-min --no-broadcast --orderly "
                "--retry-queues 2 --retry-max-times 3 --broker-id 0 --slow-broker-id 1 --notify "
                "-- G"
            ),
        ),
        ("deleteSubGroup -g G", "group delete --yes -- G"),
        ("getConsumerConfig -g G", "group describe -- G"),
        ("consumerConnection -g G", "client list --group G"),
        ("cleanUnusedTopic", "clean --unused-topics"),
        ("cleanExpiredCQ -h", "clean --help"),
    ],
)
def test_a_line_of_mqadmin_s_is_one_of_ours(line: str, expected: str) -> None:
    assert of(line) == expected


def test_a_local_time_of_mqadmin_s_is_that_time() -> None:
    words = of("resetOffsetByTime -g G -t T -s 2026-05-01#08:00:00:250").split()
    found = datetime.fromisoformat(words[words.index("--to") + 1])
    assert found == datetime(2026, 5, 1, 8, 0, 0, 250_000).astimezone()


def test_a_local_time_of_mqadmin_s_that_the_clock_skips_is_as_java_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        words = of("resetOffsetByTime -g G -t T -s 2026-03-29#02:30:00:000").split()
    time.tzset()
    found = datetime.fromisoformat(words[words.index("--to") + 1])
    assert found == datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topicList -c", "-c means nothing to a single broker, or has no counterpart"),
        ("topicStatus -t T -c X", "see `rocketpy topic describe --help`"),
        ("topicStatus -t", "-t has no value"),
        ("updateTopic -t T -o maybe", "'maybe' is neither true nor false"),
        ("resetOffsetByTime -g G -t T -s soon", "'soon' is no time"),
        ("resetOffsetByTime -g G -t T -s 2026-13-01#08:00:00:000", "is no time"),
        ("resetOffsetByTime -g G -t T -s 99999999999999999999", "is no time in ms"),
        ("queryMsgById -i A -s maybe -u x", "-u means nothing"),
        ("queryMsgByKey -t T -k A -p U", "'U' is no type of key; it is K for keys, or T for tags"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(line: str, said: str) -> None:
    with pytest.raises(NoTranslationError, match=re.escape(said)):
        of(line)
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topicRoute -n h:1 -t T", "the nearest is `rocketpy topic describe`"),
        ("topicroute", "topicRoute has no counterpart; the nearest is `rocketpy topic describe`"),
        ("updateTopicPerm -t T -p 4", "the nearest is `rocketpy topic update --perm`"),
        ("skipAccumulatedMessage -g G -t T", "the nearest is `rocketpy group reset --to latest`"),
        ("haStatus -b h:1", "haStatus has no counterpart: this broker has no replicas"),
        ("queryMsgTraceById -i A", "this broker has no traces"),
        ("listUser", "this broker has no users and access lists"),
        ("noSuchVerb", "No such command 'noSuchVerb'"),
    ],
)
def test_other_names_of_mqadmin_s_are_answered_with_the_nearest(line: str, said: str) -> None:
    done = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_nearest_are_commands_with_such_options() -> None:
    assert OTHERS.keys().isdisjoint(VERBS)
    for command in NEAREST.values():
        words = command.split()
        options = [word for word in words if word.startswith("--")]
        plain = [word for word in words if not word.startswith("--")]
        verb = plain[:2] if plain[0] not in {"stats", "lag", "clean"} else plain[:1]
        shown = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "80"})
        assert shown.exit_code == 0, command
        assert [each for each in options if each not in shown.output] == []


def test_names_ignore_case_as_mqadmin_s_do(rocketpy_broker: LocalBroker) -> None:
    done = CliRunner().invoke(app, ["TOPICLIST", "-n", rocketpy_broker.endpoint])
    assert done.exit_code == 0
    refused = CliRunner().invoke(app, ["topiclist", "-c"])
    assert "topicList: -c means nothing" in refused.stderr


@pytest.mark.parametrize("name", VERBS)
def test_every_name_has_help_and_is_in_no_list(name: str) -> None:
    done = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"})
    assert (done.exit_code, done.output.startswith("Usage: ")) == (0, True)
    assert name not in CliRunner().invoke(app, ["--help"]).output


def test_mqadmin_s_names_work(rocketpy_broker: LocalBroker) -> None:
    def line(text: str) -> str:
        done = CliRunner().invoke(app, [*text.split(), "-n", rocketpy_broker.endpoint])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert line("updateTopic -t mq -r 1 -w 1") == "topic mq has 1 queues to read and 1 to write\n"
    assert "mq" in line("topicList")
    assert "sent 1 message to mq" in line("sendMessage -t mq -p hello -k K -i 0")
    assert json.loads(line("queryMsgByKey --json -t mq -k K"))["body"] == "hello"
    assert "sent 1 message to mq" in line("sendMessage -t mq -p tagged -c TagA -i 0")
    assert json.loads(line("queryMsgByKey --json -t mq -k TagA -p T"))["body"] == "tagged"
    assert json.loads(line("queryMsgByOffset --json -t mq -i 0 -o 0"))["body"] == "hello"
    assert line("consumeMessage -t mq -g mq-group").endswith("\ttagged\n")
    assert "mq-group\tmq\t1\t0\n" in line("consumerProgress -g mq-group")
    assert "0\t2\t0\n" in line("resetOffsetByTime -g mq-group -t mq -s 0 -f true")
    assert "consumeEnable\tno\n" in line("updateSubGroup -g mq-group -s false")
    assert "consumeEnable\tno\n" in line("getConsumerConfig -g mq-group")
    assert "brokerName : broker-a\n" in line("brokerStatus")
    assert "deleted consumer group mq-group" in line("deleteSubGroup -g mq-group")
    assert line("deleteTopic -t mq") == "deleted topic mq\n"
    assert run(rocketpy_broker, "topicStatus", "-t", "mq").exit_code == 1

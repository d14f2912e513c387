"""The command line, as a person uses it."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from tests.broker.cli.shell import run


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


def test_lag_shows_every_queue(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("cli-lag", queues=2)
    shown = run(rocketpy_broker, "lag", "cli-lag", "--group", "g")
    assert shown.exit_code == 0
    assert shown.output.count("none") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
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

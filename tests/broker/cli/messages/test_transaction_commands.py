"""`rocketpy transaction …`, as a person uses it, and its client."""

from __future__ import annotations

import json
import re

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import MessageIllegalError, RefusedError
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.model import OutgoingMessage
from tests.support.broker.shell import run


def prepared(broker: LocalBroker, topic: str, body: str, group: str = "g") -> str:
    """Sends a transaction; returns its id."""
    done = run(broker, "transaction", "send", topic, "--body", body, "--group", group)
    assert done.exit_code == 0, done.output
    found = re.search(r"transaction (\w+)", done.output)
    assert found is not None
    return found[1]


def open_ids(broker: LocalBroker, *words: str) -> list[str]:
    done = run(broker, "transaction", "list", "--json", *words)
    return [json.loads(line)["transactionId"] for line in done.output.splitlines()]


def test_t02_transactions_are_listed_and_ended_from_the_shell(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    kept = prepared(rocketpy_broker, rocketpy_topic, "kept", rocketpy_topic)
    dropped = prepared(rocketpy_broker, rocketpy_topic, "dropped", rocketpy_topic)
    group = ["--group", rocketpy_topic]
    assert open_ids(rocketpy_broker, *group) == [kept, dropped]
    line = run(rocketpy_broker, "transaction", "list", *group).output.splitlines()[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.split("\t")[4])
    assert line.split("\t")[:3] == [kept, rocketpy_topic, rocketpy_topic]
    assert rocketpy_broker.messages(rocketpy_topic) == []
    assert kept in run(rocketpy_broker, "transaction", "commit", kept).output
    assert dropped in run(rocketpy_broker, "transaction", "rollback", dropped).output
    [message] = rocketpy_broker.messages(rocketpy_topic)
    assert (message.text, message.msg_id) == ("kept", kept)
    assert open_ids(rocketpy_broker, *group) == []
    none = run(rocketpy_broker, "transaction", "list", *group).stderr
    assert none == f"rocketpy: no transaction of producer group {rocketpy_topic!r} is open\n"


def test_what_is_not_open_cannot_be_ended(rocketpy_broker: LocalBroker) -> None:
    done = run(rocketpy_broker, "transaction", "commit", "NOTHING")
    assert done.exit_code == 1
    assert "no transaction 'NOTHING' is open" in done.stderr


@pytest.mark.parametrize("word", ["commit", "rollback"])
def test_an_empty_id_ends_no_other_transaction(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, word: str
) -> None:
    """Covers a script whose variable is empty."""
    kept = prepared(rocketpy_broker, rocketpy_topic, "a")
    done = run(rocketpy_broker, "transaction", word, "")
    assert (done.exit_code, "no transaction '' is open" in done.stderr) == (1, True)
    assert open_ids(rocketpy_broker) == [kept]
    assert rocketpy_broker.messages(rocketpy_topic) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "Nowhere", "--body", "x", "--group", "g"], "'Nowhere' does not exist"),
        (["send", "{topic}", "--body", "x", "--group", ""], "needs a producer group"),
    ],
)
def test_a_message_that_cannot_be_prepared_is_refused(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: list[str], said: str
) -> None:
    given = [word.format(topic=rocketpy_topic) for word in words]
    done = run(rocketpy_broker, "transaction", *given)
    assert done.exit_code == 1
    assert said in done.stderr


def test_n11_an_end_is_told_again_and_not_changed(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        message = OutgoingMessage(b"x", tags="t", keys=("k",), properties={"a": "b"}, queue_id=3)
        sent = transactions.prepare(connection, rocketpy_topic, "g", message)
        for _ in range(2):
            transactions.end(connection, sent, commit=True)
        with pytest.raises(RefusedError, match="was committed before"):
            transactions.end(connection, sent, commit=False)
        with pytest.raises(MessageIllegalError, match="queue id 8"):
            transactions.prepare(connection, rocketpy_topic, "g", OutgoingMessage(b"", queue_id=8))
    [stored] = rocketpy_broker.messages(rocketpy_topic)
    assert (stored.tags, stored.keys, stored.queue_id) == ("t", ("k",), 3)

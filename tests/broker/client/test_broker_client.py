"""`connect`: the methods of LocalBroker for a broker that another program started."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import rocketpy_broker
from rocketpy_broker import BrokerClient, BrokerUser, LocalBroker, connect
from rocketpy_broker.client.errors import (
    ClientError,
    MessageIllegalError,
    RefusedError,
    SendError,
    UnreachableError,
)
from rocketpy_broker.errors import BrokerError


@pytest.fixture
def client(rocketpy_broker: LocalBroker) -> Iterator[BrokerClient]:
    """Yields a client of the session's broker."""
    with connect(rocketpy_broker.endpoint) as client:
        yield client


def test_a_client_has_the_calls_of_local_broker(client: BrokerClient, rocketpy_topic: str) -> None:
    sent = client.send(rocketpy_topic, ["first", "second"], keys="order-1", queue_id=0)
    assert [each.text for each in client.messages(rocketpy_topic)] == ["first", "second"]
    assert client.query(rocketpy_topic, "order-1")[0].msg_id == sent[0].msg_id
    assert [each.text for each in client.pull(rocketpy_topic, "G", 1)] == ["first"]
    assert client.lag(rocketpy_topic, "G").total == 1
    (queue, *_) = client.reset_group(rocketpy_topic, "G", "earliest")
    assert (queue.old_offset, queue.new_offset) == (1, 0)
    assert "G" in client.groups()
    assert rocketpy_topic in client.topics()


def test_a_half_message_shows_after_its_commit(client: BrokerClient, rocketpy_topic: str) -> None:
    opened = client.send_transaction(rocketpy_topic, "half", "producers")
    assert client.messages(rocketpy_topic) == []
    client.commit(opened)
    assert [each.text for each in client.messages(rocketpy_topic)] == ["half"]


def test_dead_letters_are_read_and_sent_again(client: BrokerClient, rocketpy_topic: str) -> None:
    client.send(rocketpy_topic, "bad", keys="k")
    (message,) = client.messages(rocketpy_topic)
    client.create_group("billing")
    assert client.send_back(message, "billing", delay_level=-1) == "deadLetter"
    letters = client.dead_letters("billing")
    assert [each.text for each in letters] == ["bad"]
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    assert client.dead_letters("billing", since=later) == []
    (resent,) = client.resend_dead_letters("billing", letters)
    assert (resent.topic, resent.sent.msg_id) == (rocketpy_topic, message.msg_id)
    assert [each.text for each in client.messages(rocketpy_topic)] == ["bad", "bad"]
    assert client.dead_letters("unknown") == []


def test_a_new_group_may_start_with_the_next_message(
    client: BrokerClient, rocketpy_topic: str
) -> None:
    client.send(rocketpy_topic, ["old"] * 16)
    assert client.pull(rocketpy_topic, "G", start="latest") == []
    client.send(rocketpy_topic, ["new"] * 16)
    assert {each.text for each in client.pull(rocketpy_topic, "G", start="latest")} == {"new"}
    assert client.lag(rocketpy_topic, "G").total == 0
    with pytest.raises(ClientError, match=r"start is 'now', accepted is 'earliest' or 'latest'"):
        client.pull(rocketpy_topic, "G", start="now")
    with pytest.raises(ClientError, match="needs commit=True"):
        client.pull(rocketpy_topic, "G", start="latest", commit=False)


def test_errors_have_their_kind_and_the_broker_s_code(
    client: BrokerClient, rocketpy_topic: str
) -> None:
    with pytest.raises(RefusedError, match="'nowhere' does not exist") as refused:
        client.messages("nowhere")
    assert refused.value.is_missing_topic
    with pytest.raises(MessageIllegalError, match="queue"):
        client.send(rocketpy_topic, "a", queue_id=99)
    with pytest.raises(ClientError, match="body is 7, accepted is str or bytes"):
        client.send(rocketpy_topic, 7)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="has no time zone"):
        client.messages(rocketpy_topic, since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ClientError, match="cannot be sent to the broker"):
        client.query(rocketpy_topic, 7)  # type: ignore[arg-type]
    with (
        connect("127.0.0.1:1", timeout_seconds=5) as nobody,
        pytest.raises(UnreachableError, match="is it running"),
    ):
        nobody.topics()


def test_the_time_out_limits_a_call() -> None:
    # It takes connections and never answers.
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.2) as client,
        pytest.raises(UnreachableError, match="DEADLINE_EXCEEDED"),
    ):
        client.topics()


@pytest.mark.parametrize("error", [RefusedError(17, "no"), UnreachableError("h:1", "UNAVAILABLE")])
def test_an_error_passes_to_another_process(error: BrokerError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)


def test_a_pickled_client_has_a_connection_of_its_own(
    client: BrokerClient, rocketpy_topic: str
) -> None:
    with pickle.loads(pickle.dumps(client)) as copy:
        copy.send(rocketpy_topic, "by a copy")
    assert [each.text for each in client.messages(rocketpy_topic)] == ["by a copy"]


def test_a_closed_client_says_so(rocketpy_broker: LocalBroker) -> None:
    with connect(rocketpy_broker.endpoint) as client:
        assert repr(client) == f"BrokerClient('{rocketpy_broker.endpoint}')"
    client.close()
    for closed in (client, pickle.loads(pickle.dumps(client))):
        with pytest.raises(ClientError, match="is closed; connect again"):
            closed.topics()


def test_a_client_signs_its_calls_and_checks_the_certificate() -> None:
    users = [BrokerUser("root", "secret-of-root", "admin"), BrokerUser("alice", "secret-of-alice")]
    with LocalBroker(users=users, tls=True) as broker:

        def connected(user: str, ca_file: str | None) -> BrokerClient:
            return connect(
                broker.tls_endpoint,
                access_key=user,
                secret_key=f"secret-of-{user}",
                tls=True,
                tls_ca_file=ca_file,
            )

        with connected("root", broker.tls_ca_file) as admin:
            admin.create_topic("T")
        with (
            connected("alice", broker.tls_ca_file) as alice,
            pytest.raises(SendError, match=r"alice. lacks the permission") as refused,
        ):
            alice.send("T", "not hers")
        assert "secret" not in str(refused.value)
        with (
            connected("root", None) as unknown,
            pytest.raises(UnreachableError, match="tls_ca_file"),
        ):
            unknown.topics()


@pytest.mark.parametrize("seconds", [float("inf"), 1e12])
def test_a_time_out_without_an_end_is_one(rocketpy_broker: LocalBroker, seconds: float) -> None:
    with connect(rocketpy_broker.endpoint, timeout_seconds=seconds) as client:
        assert isinstance(client.topics(), list)


@pytest.mark.parametrize(
    ("endpoint", "options", "words"),
    [
        ("localhost", {}, "the endpoint is 'localhost', accepted is host:port"),
        ("h:70000", {}, "accepted is host:port"),
        ("h:\u0663", {}, "accepted is host:port"),
        ("http://127.0.0.1:8081", {}, "accepted is host:port"),
        (" 127.0.0.1:8081", {}, "the endpoint is ' 127.0.0.1:8081', accepted is host:port"),
        ("a b:8081", {}, "accepted is host:port"),
        ("::1:8081", {}, "the endpoint is '::1:8081', accepted is host:port"),
        (None, {}, "is None, accepted is host:port, an IPv6 address in brackets"),
        (8081, {}, "the endpoint is 8081, accepted is host:port"),
        ("h:1", {"access_key": "a"}, "access_key and secret_key go together"),
        ("h:1", {"tls_ca_file": "ca.pem"}, "options of TLS are set without tls; set it as well"),
        ("h:1", {"tls": True, "tls_key_file": "k.pem"}, "tls_cert_file and tls_key_file go"),
        ("h:1", {"tls": True, "tls_ca_file": "no.pem"}, "tls_ca_file is 'no.pem'"),
        ("h:1", {"timeout_seconds": 0}, "timeout_seconds is 0, accepted is a number above 0"),
        ("h:1", {"timeout_seconds": None}, "timeout_seconds is None, accepted is a number above 0"),
        ("h:1", {"timeout_seconds": "5"}, "timeout_seconds is '5', accepted is a number above 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(
    endpoint: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ClientError, match=words):
        connect(endpoint, **options)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Connect'"):
        rocketpy_broker.Connect  # noqa: B018 (the error is the test)

"""One suite for RocketMQ's SDKs and our own client, at our broker and at Apache's proxy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import ms_of_time
from tests.interop.apache_v2.clients import OWN, Clients
from tests.interop.apache_v2.conftest import ALL, NewClients, at
from tests.interop.apache_v2.servers import DELAY, FIFO, OURS, TRANSACTION, Server, texts
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import TOP

pytestmark = pytest.mark.xdist_group("apache_v2")
# After it our broker checks a transaction; Apache's is configured to check each second.
CHECK_SECONDS = 60
# A timer of RocketMQ's counts whole seconds.
TIMER_PRECISION_MS = 1_000


@dataclass(frozen=True)
class Difference:
    """An outcome that is not the same at Apache's servers."""

    ours: object
    apache: object

    def at(self, server: Server) -> object:
        """Returns the outcome at a server."""
        return self.ours if server.name == OURS else self.apache


# By a line of docs/clients.md, which has the reasons.
DIFFERENCES = {
    "A topic without the attribute `message.type`": Difference("stored", "refused"),
    "The namespace of an SDK's configuration": Difference("apart", "ignored"),
    "A consumer group that was not created": Difference("served", "refused"),
}


def numbered(word: str, count: int) -> list[str]:
    return [f"{word}-{number}" for number in range(count)]


def until_stored(server: Server, topic: str, *bodies: str) -> None:
    """Waits until a topic has exactly these messages, in this order."""
    until(lambda: texts(server, topic) == [*bodies], lambda: texts(server, topic))


def test_each_difference_is_in_the_documents() -> None:
    document = (TOP / "docs" / "clients.md").read_text("utf-8")
    assert [each for each in DIFFERENCES if f"| {each} |" not in document] == []


# --- Producers ---


@at(ALL)
def test_messages_are_stored_with_all_their_parts(
    server: Server, clients: Clients, topic: str
) -> None:
    server.create_topic(topic)
    producer = clients.producer(topic)
    parts = {"tag": "a", "keys": ["k1"], "properties": {"color": "red"}}
    sent = {mode: numbered(mode, 10) for mode in clients.modes}
    receipts = {mode: producer.send(topic, *sent[mode], mode=mode, **parts) for mode in sent}
    until(lambda: len(server.stored(topic)) == 10 * len(sent))
    stored = {each.msg_id: each for each in server.stored(topic)}
    for mode, bodies in sent.items():
        assert [stored[each["messageId"]].text for each in receipts[mode]] == bodies
    for each in stored.values():
        assert (each.tags, each.keys, each.properties["color"]) == ("a", ("k1",), "red")
    # The SDKs choose the queues, some of them by chance.
    assert len({each.queue_id for each in stored.values()}) > 1


def test_a_message_group_keeps_its_order_in_one_queue(
    server: Server, clients: Clients, topic: str
) -> None:
    server.create_topic(topic, kind=FIFO)
    producer = clients.producer(topic)
    groups = {group: numbered(group, 5) for group in ("g1", "g2", "g3")}
    for group, bodies in groups.items():
        producer.send(topic, *bodies, group=group)
    until(lambda: len(server.stored(topic)) == 15)
    for group, bodies in groups.items():
        mine = [each for each in server.stored(topic) if each.text.startswith(group)]
        assert len({each.queue_id for each in mine}) == 1
        assert [each.text for each in sorted(mine, key=lambda one: one.queue_offset)] == bodies


@at(ALL)
def test_a_delayed_message_is_not_early(server: Server, clients: Clients, topic: str) -> None:
    server.create_topic(topic, queues=1, kind=DELAY)
    due_ms = SystemClock().now_ms() + server.delay_ms
    (sent,) = clients.producer(topic).send(topic, "late", deliverAt=due_ms)
    server.advance(server.delay_ms / 1_000 + 1)
    until_stored(server, topic, "late")
    (stored,) = server.stored(topic)
    assert stored.msg_id == sent["messageId"]
    assert ms_of_time(stored.store_timestamp) >= due_ms - TIMER_PRECISION_MS


@at(ALL)
def test_a_recalled_message_never_comes(server: Server, clients: Clients, topic: str) -> None:
    server.create_topic(topic, queues=1, kind=DELAY)
    producer = clients.producer(topic)

    def send(body: str, due_ms: int) -> Any:
        (sent,) = producer.send(topic, body, deliverAt=due_ms)
        return sent

    def is_recalled(delay_ms: int) -> bool:
        due_ms = SystemClock().now_ms() + delay_ms
        sent = send(f"recalled-{delay_ms}", due_ms)
        try:
            recalled = producer.recall(topic, sent["recallHandle"])
        except RocketMQError:
            return False
        assert recalled == str(sent["messageId"])
        # A timer of RocketMQ's may deliver meanwhile what is recalled in its last seconds.
        return SystemClock().now_ms() < due_ms - 2 * TIMER_PRECISION_MS

    delay_ms = server.delay_ms
    while not is_recalled(delay_ms):
        # A busy machine was too late. The server accepts a day at most.
        delay_ms *= 2
    send("kept", SystemClock().now_ms() + delay_ms + 2 * TIMER_PRECISION_MS)
    server.advance(delay_ms / 1_000 + 3)
    until(lambda: "kept" in texts(server, topic), lambda: texts(server, topic))
    assert f"recalled-{delay_ms}" not in texts(server, topic)


@at(ALL)
def test_transactions_commit_and_roll_back(server: Server, clients: Clients, topic: str) -> None:
    server.create_topic(topic, queues=1, kind=TRANSACTION)
    producer = clients.producer(topic)
    for body, commits in [("first", True), ("undone", False), ("last", True)]:
        producer.end(producer.transaction(topic, body), commits=commits)
    until_stored(server, topic, "first", "last")


@at(ALL)
def test_a_producer_answers_checks_of_its_transactions(
    server: Server, clients: Clients, topic: str
) -> None:
    server.create_topic(topic, queues=1, kind=TRANSACTION)
    producer = clients.producer(topic)
    begun = {producer.transaction(topic, f"{word}-1"): f"{word}-1" for word in ("roll", "commit")}
    begun[producer.transaction(topic, "unknown-1")] = "unknown-1"
    server.advance(CHECK_SECONDS)
    until(lambda: "commit-1" in texts(server, topic), lambda: texts(server, topic))
    # Apache's broker checks again where an answer takes a second, and two answers commit twice.
    stored = texts(server, topic)
    assert stored == ["commit-1"] if server.name == OURS else {*stored} == {"commit-1"}
    until(lambda: {each.id: each.body for each in producer.checked()} == begun, producer.checked)
    assert {each.properties["color"] for each in producer.checked()} == {"red"}


@at(ALL)
def test_the_transaction_of_a_killed_producer_is_checked_at_another(
    server: Server, clients: Clients, new_clients: NewClients, topic: str
) -> None:
    server.create_topic(topic, queues=1, kind=TRANSACTION)
    transaction_id = clients.producer(topic).transaction(topic, "commit-1")
    clients.kill()
    other = new_clients().producer(topic)
    # A server that answers this one has the producer's settings.
    other.end(other.transaction(topic, "its own"), commits=True)
    until(lambda: "its own" in texts(server, topic), lambda: texts(server, topic))
    server.advance(CHECK_SECONDS)
    until(lambda: "commit-1" in texts(server, topic), lambda: texts(server, topic))
    assert transaction_id in {each.id for each in other.checked()}


@at(ALL)
def test_a_missing_topic_is_refused(server: Server, clients: Clients, topic: str) -> None:
    assert texts(server, topic) == []
    with pytest.raises(RocketMQError, match=f"{topic}|40402"):
        clients.producer().send(topic, "x")
    assert texts(server, topic) == []


@at(ALL)
def test_a_type_that_does_not_fit_the_topic_is_refused(
    server: Server, clients: Clients, topic: str
) -> None:
    server.create_topic(topic, kind=FIFO)
    producer = clients.producer(topic)
    with pytest.raises(RocketMQError, match=r"match|has the message type FIFO"):
        producer.send(topic, "x")
    producer.send(topic, "in order", group="g")
    until_stored(server, topic, "in order")


@at(ALL)
def test_a_topic_without_a_type_accepts_types(server: Server, clients: Clients, topic: str) -> None:
    server.create_topic(topic, kind=None)
    producer = clients.producer(topic)
    producer.send(topic, "normal")

    def outcome() -> str:
        try:
            producer.send(topic, "in order", group="g")
        except RocketMQError:
            return "refused"
        return "stored"

    assert outcome() == DIFFERENCES["A topic without the attribute `message.type`"].at(server)


def test_namespaces_are_apart(server: Server, clients: Clients, topic: str) -> None:
    server.create_topic(topic, queues=1)
    server.create_topic(f"ns%{topic}", queues=1)
    clients.producer(topic, namespace="ns").send(topic, "inside")
    clients.producer(topic).send(topic, "outside")
    names = {"ignored": topic, "apart": f"ns%{topic}"}

    def found() -> str:
        return next((key for key, name in names.items() if "inside" in texts(server, name)), "")

    until(lambda: found() != "")
    assert found() == DIFFERENCES["The namespace of an SDK's configuration"].at(server)
    until(lambda: "outside" in texts(server, topic))


# --- Consumers ---


@at(ALL)
def test_a_consumer_gets_messages_with_all_their_parts(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic)
    producer = clients.producer(topic)
    parts: dict[str, Any] = {"tag": "A", "keys": ["k1"], "properties": {"color": "red"}}
    (sent,) = producer.send(topic, "a", **parts)
    server.create_group(group)
    consumer = clients.simple(topic, group)
    (message,) = consumer.receive(1)
    assert (message.id, message.body) == (sent["messageId"], "a")
    assert (message.tag, message.keys, message.attempt) == ("A", ["k1"], 1)
    assert message.properties == {"color": "red"}
    if clients.kind != OWN:  # Our reader acknowledges a message itself.
        consumer.ack(message)
    consumer.stop()


@at(ALL)
def test_a_group_that_was_not_created(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    clients.producer(topic).send(topic, "a")

    def outcome() -> str:
        try:
            found = clients.simple(topic, group).receive_once(1)
        except RocketMQError:
            return "refused"
        return "served" if found else "empty"

    assert outcome() == DIFFERENCES["A consumer group that was not created"].at(server)


def test_an_unacknowledged_message_comes_again_and_an_acknowledged_one_does_not(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    clients.producer(topic).send(topic, "a", "b")
    server.create_group(group)
    consumer = clients.simple(topic, group)
    consumer.ack(next(each for each in consumer.receive(2) if each.body == "a"))
    server.advance(11)
    (again,) = consumer.receive(1)
    assert (again.body, again.attempt) == ("b", 2)
    consumer.ack(again)


def test_a_changed_invisible_time_counts(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    clients.producer(topic).send(topic, "a", "b")
    server.create_group(group)
    consumer = clients.simple(topic, group)
    first, second = consumer.receive(2, invisible_seconds=600)
    consumer.change(first, 300)
    consumer.change(second, 1)
    (again,) = consumer.receive(1)
    assert (again.body, again.attempt) == (second.body, 2)
    # The change has replaced the handle.
    consumer.ack(first)


@pytest.mark.parametrize(
    ("expression", "is_sql"), [("A || C", False), ("color = 'red'", True)], ids=["tags", "sql"]
)
def test_a_filter_selects_messages(
    server: Server, clients: Clients, topic: str, group: str, expression: str, *, is_sql: bool
) -> None:
    server.create_topic(topic, queues=1)
    producer = clients.producer(topic)
    for tag, color in [("A", "red"), ("B", "blue"), ("C", "red")]:
        producer.send(topic, tag, tag=tag, properties={"color": color})
    server.create_group(group)
    consumer = clients.simple(topic, group, expression, sql=is_sql)
    assert [each.body for each in consumer.receive(2)] == ["A", "C"]


def test_push_consumers_share_messages_and_get_a_failed_one_again(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic)
    server.create_group(group)
    members = [clients.push(topic, group) for _ in range(2)]
    sent = [*numbered("m", 30), "fail-1-a"]
    clients.producer(topic).send(topic, *sent)
    wanted = sorted([*sent, "fail-1-a"])
    found: list[str] = []

    def is_complete() -> bool:
        found[:] = sorted(body for each in members for body in each.bodies())
        return len(found) >= len(wanted)

    until(is_complete, lambda: found)
    assert found == wanted
    failed = [each for one in members for each in one.consumed() if each.body == "fail-1-a"]
    assert sorted(each.attempt for each in failed) == [1, 2]


@at(ALL)
def test_a_message_that_a_push_consumer_never_consumes_is_a_dead_letter(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    server.create_group(group, retry_max_times=1)
    consumer = clients.push(topic, group)
    clients.producer(topic).send(topic, "fail-9-a")
    until_stored(server, f"%DLQ%{group}", "fail-9-a")
    assert [each.attempt for each in consumer.consumed()] == [1, 2]


def test_an_ordered_push_consumer_keeps_the_order_and_forwards_dead_letters(
    server: Server, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1, kind=FIFO)
    server.create_group(group, retry_max_times=1, is_orderly=True)
    consumer = clients.push(topic, group)
    sent = ["m-0", "fail-1-a", "m-1", "fail-9-b", "m-2"]
    clients.producer(topic).send(topic, *sent, group="order")
    wanted = ["m-0", "fail-1-a", "fail-1-a", "m-1", "fail-9-b", "fail-9-b", "m-2"]
    until(lambda: len(consumer.bodies()) >= len(wanted), consumer.bodies)
    assert consumer.bodies() == wanted
    until_stored(server, f"%DLQ%{group}", "fail-9-b")

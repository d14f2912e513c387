"""RocketMQ's own Java and Go clients at our broker, found by our name server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.clients import ProducerGroupRequest
from tests.interop.cluster.connection import ask
from tests.interop.cluster.java_clients import mqadmin
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import (
    Consumer,
    Messaging,
    in_java,
    until,
    until_consumed,
)
from tests.interop.rocketmq import V5, V5_3

# RocketMQ 4 has neither pop consumption nor recall.
in_5 = pytest.mark.parametrize("client", [V5, V5_3], indirect=True, scope="session")
DEAD_LETTERS, TRACES = "%DLQ%consumers", "RMQ_SYS_TRACE_TOPIC"
# After it the broker checks a transaction.
CHECK_SECONDS = 60
MODES = ["sync", "async", "oneway", "batch", "ordered"]


def numbered(word: str, count: int) -> list[str]:
    return [f"{word}-{number}" for number in range(count)]


def until_registered(broker: LocalBroker, group: str) -> None:
    """Waits for a producer's first heartbeat.

    It goes to the brokers of the topics to which the producer has sent. That of the Go client comes
    a second after its start, the next after 30 s.
    """
    header = ProducerGroupRequest(group)
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    until(lambda: ask(broker.remoting_endpoint, code, header).code == 0)


def second_consumer(messaging: Messaging, max_reconsume_times: int = 16) -> Consumer:
    """Starts a consumer of a group whose retry topic has a route.

    The Go client asks for that route at its start, and then every 30 seconds.
    """
    messaging.consumer("T").stop()
    return messaging.consumer("T", maxReconsumeTimes=max_reconsume_times)


def redeliveries(consumer: Consumer) -> set[int]:
    return {each.reconsume_times for each in consumer.consumed()}


@pytest.mark.parametrize("mode", MODES)
def test_all_kinds_of_sends_reach_a_push_consumer(
    broker: LocalBroker, messaging: Messaging, mode: str
) -> None:
    broker.create_topic("T", queues=4)
    consumer, sent = messaging.consumer("T"), numbered(mode, 20)
    results = messaging.producer(mode=mode).send("T", sent, mode, orderKey=2) or []
    assert {each["status"] for each in results} <= {"SEND_OK"}
    until_consumed([consumer], sent)
    assert sorted(consumer.bodies()) == sorted(sent)
    if mode == "ordered":
        assert len({each.queue_id for each in consumer.consumed()}) == 1
        in_queue = sorted(consumer.consumed(), key=lambda each: each.queue_offset)
        assert [each.body for each in in_queue] == sent


def test_consumers_get_the_ids_and_places_that_the_producer_got(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    [single] = messaging.producer().send("T", ["single"], tags="a", keys="k1 k2")
    consumer = messaging.consumer("T", expression="a || b")
    until_consumed([consumer], ["single"])
    [consumed] = consumer.consumed()
    assert (consumed.msg_id, consumed.queue_offset) == (single["msgId"], single["queueOffset"])
    [stored] = broker.messages("T")
    assert (stored.tags, stored.keys, stored.msg_id) == ("a", ("k1", "k2"), single["msgId"])


def test_a_topic_of_a_first_send_is_created(broker: LocalBroker, messaging: Messaging) -> None:
    messaging.producer().send("new-topic", ["first"])
    consumer = messaging.consumer("new-topic")
    until_consumed([consumer], ["first"])
    assert "new-topic" in broker.topics()


@in_java
def test_a_consumer_that_waits_for_its_topic_gets_the_first_message(
    broker: LocalBroker, messaging: Messaging
) -> None:
    consumer = messaging.consumer("new-topic")
    messaging.producer().send("new-topic", ["first"])
    until_consumed([consumer], ["first"])
    assert "new-topic" in broker.topics()


def test_a_large_body_is_stored_compressed_and_read_whole(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    large = "compressed by its producer " * 1_000
    messaging.producer().send("T", [large])
    consumer = messaging.consumer("T")
    until_consumed([consumer], [large])
    [stored] = broker.messages("T")
    assert stored.text == large
    assert len(stored.stored_body) < len(large)


def test_consumers_share_the_queues_and_take_them_over(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=4)
    producer = messaging.producer()
    one, other = messaging.consumer("T"), messaging.consumer("T")
    sent: list[str] = []

    def shared() -> bool:
        sent.append(f"m-{len(sent)}")
        producer.send("T", [sent[-1]])
        return bool(one.bodies()) and bool(other.bodies())

    until(shared, lambda: (one.bodies(), other.bodies()))
    until_consumed([one, other], sent)
    other.stop()
    producer.send("T", numbered("later", 8))
    until_consumed([one], numbered("later", 8))


def test_an_orderly_consumer_keeps_the_order_over_a_failure(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=2)
    sent = ["a", "b", "fail-c", "d", "e"]
    messaging.producer(mode="ordered").send("T", sent, "ordered", orderKey=1)
    consumer = messaging.consumer("T", "orderly")
    until_consumed([consumer], sent)
    assert consumer.bodies() == ["a", "b", "fail-c", "fail-c", "d", "e"]


def test_each_broadcasting_consumer_gets_all(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=2)
    messaging.producer().send("T", ["early"])
    consumers = [messaging.consumer("T", "broadcasting") for _ in range(2)]
    sent = numbered("m", 10)
    messaging.producer("others").send("T", sent)
    for consumer in consumers:
        until_consumed([consumer], sent)


def test_a_pull_consumer_goes_on_after_its_commit(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=2)
    producer = messaging.producer()
    producer.send("T", numbered("before", 10))
    first = messaging.consumer("T", "pull")
    until_consumed([first], numbered("before", 10))
    first.stop()
    producer.send("T", numbered("after", 10))
    second = messaging.consumer("T", "pull")
    until_consumed([second], numbered("after", 10))
    assert sorted(second.bodies()) == sorted(numbered("after", 10))


def test_a_tag_is_filtered(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    producer = messaging.producer()
    producer.send("T", ["unwanted"], tags="b")
    producer.send("T", ["wanted"], tags="a")
    consumer = messaging.consumer("T", expression="a || c")
    until_consumed([consumer], ["wanted"])
    assert consumer.bodies() == ["wanted"]


def test_an_expression_of_sql92_filters(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    producer = messaging.producer()
    producer.send("T", ["unwanted"], tags="b", keys="k1")
    producer.send("T", ["wanted"], tags="a", keys="k2")
    consumer = messaging.consumer("T", expression="TAGS = 'a' AND KEYS <> 'k1'", isSql=True)
    until_consumed([consumer], ["wanted"])
    assert consumer.bodies() == ["wanted"]


def test_a_failed_message_comes_again_by_the_retry_topic(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer = second_consumer(messaging)
    messaging.producer().send("T", ["fail-once"])
    until(lambda: redeliveries(consumer) == {0, 1}, consumer.consumed)
    assert set(consumer.bodies()) == {"fail-once"}


def test_a_message_that_is_never_consumed_is_a_dead_letter(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer = second_consumer(messaging, max_reconsume_times=1)
    messaging.producer().send("T", ["poison"])

    def letters() -> set[str]:
        # A client sends a message back again where the answer takes too long.
        is_there = DEAD_LETTERS in broker.topics()
        return {each.text for each in broker.messages(DEAD_LETTERS)} if is_there else set()

    until(lambda: letters() != set(), consumer.bodies)
    assert letters() == {"poison"}
    assert redeliveries(consumer) == {0, 1}


def test_a_delayed_message_is_not_early(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    consumer = messaging.consumer("T")
    messaging.producer().send("T", ["late"], delayLevel=1)
    until_consumed([consumer], ["late"])
    assert consumer.consumed()[0].age_ms >= 1_000


@in_java
def test_a_timed_message_is_not_early(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    consumer = messaging.consumer("T")
    messaging.producer().send("T", ["late"], delayMs="1500")
    until_consumed([consumer], ["late"])
    assert consumer.consumed()[0].age_ms >= 1_000


@in_5
def test_a_recalled_message_never_comes(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    consumer, producer = messaging.consumer("T"), messaging.producer()
    [recalled] = producer.send("T", ["recalled"], delayMs="60000")
    [kept] = producer.send("T", ["kept"], delayMs="60000")
    assert producer.recall("T", recalled["recallHandle"]) == recalled["msgId"]
    broker.advance_clock(61)
    until_consumed([consumer], ["kept"])
    with pytest.raises(RocketMQError):
        producer.recall("T", kept["recallHandle"])
    assert [each.text for each in broker.messages("T")] == ["kept"]


def test_a_request_gets_its_reply(broker: LocalBroker, messaging: Messaging) -> None:
    broker.create_topic("T", queues=1)
    messaging.consumer("T", "replying", group="servers")
    producer = messaging.producer("askers")
    producer.send("other", ["first"])
    until_registered(broker, "askers")

    def outcome() -> str:
        try:
            return producer.request("T", "question")
        except RocketMQError as error:
            return str(error)

    found = outcome()
    # The client of 5.3 ends its wait for the reply at the answer to the request's send. The reply
    # may be faster.
    is_given_up = messaging.version == V5_3 and "reply message timeout" in found
    assert is_given_up or found == "reply to question"


def test_transactions_commit_roll_back_and_answer_the_brokers_check(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer, producer = messaging.consumer("T"), messaging.producer(mode="transaction")
    producer.send("T", ["commit", "rollback", "later commit", "later rollback"])
    until_consumed([consumer], ["commit"])
    until_registered(broker, "producers")
    broker.advance_clock(CHECK_SECONDS)
    until_consumed([consumer], ["later commit"])
    until(lambda: broker.transactions() == [], broker.transactions)
    assert sorted(producer.asked()) == ["later commit", "later rollback"]
    assert consumer.bodies() == ["commit", "later commit"]


def test_traces_show_the_send_and_both_ends_of_the_consumption(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    # The Go client traces only into a topic that is there; a send creates it.
    messaging.producer("others").send(TRACES, ["first"])
    consumer = messaging.consumer("T", trace=True)
    [sent] = messaging.producer(trace=True).send("T", ["traced"])
    until_consumed([consumer], ["traced"])

    def traces() -> set[str]:
        texts = [message.text for message in broker.messages(TRACES)]
        lines = [line for text in texts for line in text.split("\x02") if sent["msgId"] in line]
        return {line.partition("\x01")[0] for line in lines}

    until(lambda: traces() == {"Pub", "SubBefore", "SubAfter"}, traces)


@in_java
def test_a_failed_message_comes_again_in_its_namespace(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("tenant%T", queues=1)
    consumer = messaging.consumer("T", namespace="tenant")
    messaging.producer(namespace="tenant").send("T", ["fail", "second"])
    until(lambda: sorted(consumer.bodies()) == ["fail", "fail", "second"], consumer.bodies)
    assert len(broker.messages("tenant%T")) == 2
    [retry] = broker.messages("%RETRY%tenant%consumers")
    assert retry.text == "fail"


def set_pop(broker: LocalBroker, messaging: Messaging, folder: Path) -> None:
    """Lets the group pop the topic, by RocketMQ's tool."""
    words = ("-b", broker.remoting_endpoint, "-t", "T", "-g", "consumers", "-m", "POP", "-q", "0")
    said = mqadmin(messaging.version, folder, "setConsumeMode", *words)
    assert "success" in said, said


@in_5
def test_pop_consumers_share_the_queues_and_get_a_failed_message_again(
    broker: LocalBroker, messaging: Messaging, tmp_path: Path
) -> None:
    broker.create_topic("T", queues=2)
    set_pop(broker, messaging, tmp_path)
    consumers = [messaging.consumer("T", "pop") for _ in range(2)]
    sent = [*numbered("m", 20), "fail-once"]
    messaging.producer().send("T", sent)
    until_consumed(consumers, sent)

    def times() -> list[int]:
        every = [one for each in consumers for one in each.consumed()]
        return [each.reconsume_times for each in every if each.body == "fail-once"]

    # A rebalance may drop a message that was popped; it then comes again to the other consumer.
    until(lambda: len(times()) >= 2, times)
    assert max(times()) >= 1
    assert len({*times()}) == len(times())
    assert {body for each in consumers for body in each.bodies()} == set(sent)

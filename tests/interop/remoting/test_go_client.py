"""RocketMQ's Go client at our broker, found by our name server."""

from __future__ import annotations

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.clients import ProducerGroupRequest
from tests.interop.cluster.connection import ask
from tests.interop.remoting.clients import Consumer, Messaging, until, until_consumed

DEAD_LETTERS, TRACES = "%DLQ%consumers", "RMQ_SYS_TRACE_TOPIC"
# After it the broker checks a transaction.
CHECK_SECONDS = 60


def numbered(word: str, count: int) -> list[str]:
    return [f"{word}-{number}" for number in range(count)]


def until_registered(broker: LocalBroker, group: str) -> None:
    """Waits for a producer's first heartbeat, a second after its start.

    It goes to the brokers of the topics to which the producer has sent; the next comes after 30 s.
    """
    header = ProducerGroupRequest(group)
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    until(lambda: ask(broker.remoting_endpoint, code, header).code == 0)


def second_consumer(go: Messaging, max_reconsume_times: int = 0) -> Consumer:
    """Starts a consumer of a group whose retry topic has a route.

    The client asks for that route at its start, and then every 30 seconds.
    """
    go.consumer("T").stop()
    return go.consumer("T", maxReconsumeTimes=max_reconsume_times)


def redeliveries(consumer: Consumer) -> set[int]:
    return {each.reconsume_times for each in consumer.consumed()}


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "ordered"])
def test_go_sends_of_all_kinds_reach_a_push_consumer(
    broker: LocalBroker, go: Messaging, mode: str
) -> None:
    broker.create_topic("T", queues=4)
    consumer, sent = go.consumer("T"), numbered(mode, 20)
    results = go.producer(mode=mode).send("T", sent, mode, orderKey=7) or []
    assert {each["status"] for each in results} <= {"SEND_OK"}
    until_consumed([consumer], sent)
    assert sorted(consumer.bodies()) == sorted(sent)
    if mode == "ordered":
        assert len({each.queue_id for each in consumer.consumed()}) == 1
        in_queue = sorted(consumer.consumed(), key=lambda each: each.queue_offset)
        assert [each.body for each in in_queue] == sent


def test_go_consumers_get_the_ids_and_places_that_the_producer_got(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    [single] = go.producer().send("T", ["single"], tags="a", keys="k1 k2")
    consumer = go.consumer("T", expression="a || b")
    until_consumed([consumer], ["single"])
    [consumed] = consumer.consumed()
    assert (consumed.msg_id, consumed.queue_offset) == (single["msgId"], single["queueOffset"])
    [stored] = broker.messages("T")
    assert (stored.tags, stored.keys, stored.msg_id) == ("a", ("k1", "k2"), single["msgId"])


def test_a_topic_of_a_first_go_send_is_created(broker: LocalBroker, go: Messaging) -> None:
    go.producer().send("new-topic", ["first"])
    consumer = go.consumer("new-topic")
    until_consumed([consumer], ["first"])
    assert "new-topic" in broker.topics()


def test_a_large_go_body_is_stored_compressed_and_read_whole(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    large = "compressed by its producer " * 1_000
    go.producer().send("T", [large])
    consumer = go.consumer("T")
    until_consumed([consumer], [large])
    [stored] = broker.messages("T")
    assert stored.text == large
    assert len(stored.stored_body) < len(large)


def test_go_consumers_share_the_queues_and_take_them_over(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=4)
    producer = go.producer()
    one, other = go.consumer("T"), go.consumer("T")
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


def test_an_orderly_go_consumer_keeps_the_order_over_a_failure(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=2)
    sent = ["a", "b", "fail-c", "d", "e"]
    go.producer(mode="ordered").send("T", sent, orderKey=1)
    consumer = go.consumer("T", "orderly")
    until_consumed([consumer], sent)
    assert consumer.bodies() == ["a", "b", "fail-c", "fail-c", "d", "e"]


def test_each_broadcasting_go_consumer_gets_all(broker: LocalBroker, go: Messaging) -> None:
    broker.create_topic("T", queues=2)
    go.producer().send("T", ["early"])
    consumers = [go.consumer("T", "broadcasting") for _ in range(2)]
    sent = numbered("m", 10)
    go.producer("others").send("T", sent)
    for consumer in consumers:
        until_consumed([consumer], sent)


def test_a_go_pull_consumer_goes_on_after_its_commit(broker: LocalBroker, go: Messaging) -> None:
    broker.create_topic("T", queues=2)
    producer = go.producer()
    producer.send("T", numbered("before", 10))
    first = go.consumer("T", "pull")
    until_consumed([first], numbered("before", 10))
    first.stop()
    producer.send("T", numbered("after", 10))
    second = go.consumer("T", "pull")
    until_consumed([second], numbered("after", 10))
    assert sorted(second.bodies()) == sorted(numbered("after", 10))


def test_a_failed_message_comes_to_a_go_consumer_again(broker: LocalBroker, go: Messaging) -> None:
    broker.create_topic("T", queues=1)
    consumer = second_consumer(go)
    go.producer().send("T", ["fail-once"])
    until(lambda: redeliveries(consumer) == {0, 1}, consumer.consumed)
    assert set(consumer.bodies()) == {"fail-once"}


def test_a_message_that_go_never_consumes_is_a_dead_letter(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer = second_consumer(go, max_reconsume_times=1)
    go.producer().send("T", ["poison"])
    until(lambda: DEAD_LETTERS in broker.topics(), consumer.bodies)
    # The client sends a message back again where the answer takes longer than 3 seconds.
    assert {message.text for message in broker.messages(DEAD_LETTERS)} == {"poison"}
    assert redeliveries(consumer) == {0, 1}


def test_a_delayed_go_message_is_not_early(broker: LocalBroker, go: Messaging) -> None:
    broker.create_topic("T", queues=1)
    consumer = go.consumer("T")
    go.producer().send("T", ["late"], delayLevel=1)
    until_consumed([consumer], ["late"])
    assert consumer.consumed()[0].age_ms >= 1_000


def test_go_transactions_commit_roll_back_and_answer_the_brokers_check(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer = go.consumer("T")
    producer = go.producer(mode="transaction")
    producer.send("T", ["commit", "rollback", "later commit", "later rollback"])
    until_consumed([consumer], ["commit"])
    until_registered(broker, "producers")
    broker.advance_clock(CHECK_SECONDS)
    until_consumed([consumer], ["later commit"])
    until(lambda: broker.transactions() == [], broker.transactions)
    assert sorted(producer.asked()) == ["later commit", "later rollback"]
    assert consumer.bodies() == ["commit", "later commit"]


def test_a_go_request_gets_its_reply(broker: LocalBroker, go: Messaging) -> None:
    broker.create_topic("T", queues=1)
    go.consumer("T", "replying", group="servers")
    producer = go.producer("askers")
    producer.send("other", ["first"])
    until_registered(broker, "askers")
    assert producer.request("T", "question") == "reply to question"


def test_go_traces_show_the_send_and_both_ends_of_the_consumption(
    broker: LocalBroker, go: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    # The client traces only into a topic that is there; a send creates it.
    go.producer("others").send(TRACES, ["first"])
    consumer = go.consumer("T", trace=True)
    [sent] = go.producer(trace=True).send("T", ["traced"])
    until_consumed([consumer], ["traced"])

    def traces() -> set[str]:
        texts = [message.text for message in broker.messages(TRACES)]
        lines = [line for text in texts for line in text.split("\x02") if sent["msgId"] in line]
        return {line.partition("\x01")[0] for line in lines}

    until(lambda: traces() == {"Pub", "SubBefore", "SubAfter"}, traces)


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "pull"])
def test_a_killed_broker_loses_nothing_that_go_was_acknowledged(
    broker: LocalBroker, go: Messaging, kind: str
) -> None:
    broker.create_topic("T", queues=1)
    producer, consumer = go.producer(), go.consumer("T", kind)
    before, after = numbered("before", 50), numbered("after", 50)
    producer.send("T", before)
    until(lambda: len(consumer.bodies()) > 5, consumer.bodies)
    broker.kill()
    broker.start()
    producer.send("T", after)
    until_consumed([consumer], before + after)
    if kind == "orderly":
        first_places = [consumer.bodies().index(body) for body in before + after]
        assert first_places == sorted(first_places)

"""RocketMQ's SDK for Python as a producer of our broker, and its interface beside ours."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

from rocketpy_broker import LocalBroker
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from tests.interop.drivers import Driver, RocketMQError
from tests.interop.remoting.clients import until

# After it the broker checks a transaction.
CHECK_SECONDS = 60
_numbers = itertools.count(1)


class Producer:
    """A producer in the SDK's process."""

    def __init__(self, process: Driver, broker: LocalBroker, *topics: str, **more: str) -> None:
        self._process = process
        self.name = f"producer-{next(_numbers)}"
        self.ask("producer", endpoints=broker.endpoint, topics=topics, **more)

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        return self._process.ask(do, name=self.name, **fields)

    def send(self, topic: str, *bodies: str, mode: str = "sync", **parts: Any) -> list[Any]:
        """Returns the receipts of messages with the same parts."""
        messages = [{"topic": topic, "body": body, **parts} for body in bodies]
        receipts: list[Any] = self.ask("send", messages=messages, mode=mode)["receipts"]
        return receipts

    def transaction(self, topic: str, body: str, *, commits: bool | None = None) -> str:
        """Returns the id of a half message, after its end if `commits` is given."""
        message = {"topic": topic, "body": body, "properties": {"color": "red"}}
        (receipt,) = self.ask("transaction", message=message)["receipts"]
        message_id = str(receipt["messageId"])
        if commits is not None:
            self.ask("end", messageId=message_id, commits=commits)
        return message_id

    def checked(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("checked")["checked"]
        return found


def texts(broker: LocalBroker, topic: str = "T") -> list[str]:
    return [each.text for each in broker.messages(topic)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_messages_of_the_sdk_are_stored_with_all_their_parts(
    broker: LocalBroker, python_sdk: Driver, mode: str
) -> None:
    broker.create_topic("T", queues=4)
    producer = Producer(python_sdk, broker, "T")
    sent = [f"m-{number}" for number in range(20)]
    receipts = producer.send(
        "T", *sent, mode=mode, tag="a", keys=["k1"], properties={"color": "red"}
    )
    stored = {each.msg_id: each for each in broker.messages("T")}
    assert [stored[each["messageId"]].text for each in receipts] == sent
    for each in stored.values():
        assert (each.tags, each.keys, each.properties["color"]) == ("a", ("k1",), "red")
    assert len({each.queue_id for each in stored.values()}) == 4
    producer.ask("stop")


def test_a_group_of_the_sdk_keeps_its_order(broker: LocalBroker, python_sdk: Driver) -> None:
    broker.create_topic("T", queues=4)
    producer = Producer(python_sdk, broker, "T")
    for group in ("g1", "g2", "g3"):
        producer.send("T", *(f"{group}-{number}" for number in range(5)), message_group=group)
    for group in ("g1", "g2", "g3"):
        mine = [each for each in broker.messages("T") if each.text.startswith(group)]
        assert len({each.queue_id for each in mine}) == 1
        in_queue = sorted(mine, key=lambda each: each.queue_offset)
        assert [each.text for each in in_queue] == [f"{group}-{number}" for number in range(5)]


def test_a_delayed_message_of_the_sdk_is_not_early_and_a_recalled_one_never_comes(
    broker: LocalBroker, python_sdk: Driver
) -> None:
    broker.create_topic("T", queues=1)
    producer = Producer(python_sdk, broker, "T")
    (kept,) = producer.send("T", "kept", delay_seconds=3_600)
    (recalled,) = producer.send("T", "recalled", delay_seconds=3_600)
    answer = producer.ask("recall", topic="T", handle=recalled["recallHandle"])
    assert answer["messageId"] == recalled["messageId"]
    assert texts(broker) == []
    broker.advance_clock(3_700)
    until(lambda: texts(broker) == ["kept"], lambda: texts(broker))
    assert [each.msg_id for each in broker.messages("T")] == [kept["messageId"]]


def test_transactions_of_the_sdk_commit_roll_back_and_answer_checks(
    broker: LocalBroker, python_sdk: Driver
) -> None:
    broker.create_topic("T", queues=1)
    producer = Producer(python_sdk, broker, "T")
    producer.transaction("T", "ended", commits=True)
    producer.transaction("T", "undone", commits=False)
    orphans = [producer.transaction("T", body) for body in ("commit-1", "roll-1", "unknown-1")]
    assert texts(broker) == ["ended"]
    broker.advance_clock(CHECK_SECONDS)
    until(lambda: texts(broker) == ["ended", "commit-1"], producer.checked)
    found = {each["messageId"]: each for each in producer.checked()}
    assert [found[each]["body"] for each in orphans] == ["commit-1", "roll-1", "unknown-1"]
    assert not any(each["corrupted"] for each in found.values())
    assert {each["properties"]["color"] for each in found.values()} == {"red"}


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_of_the_sdk_ends_after_a_kill_of_the_broker(
    broker: LocalBroker, python_sdk: Driver, commits: bool
) -> None:
    broker.create_topic("T", queues=1)
    producer = Producer(python_sdk, broker, "T")
    message_id = producer.transaction("T", "open")
    broker.kill()
    broker.start()

    def ends() -> bool:
        try:
            producer.ask("end", messageId=message_id, commits=commits)
        except RocketMQError:
            return False
        return True

    until(ends)
    assert texts(broker) == (["open"] if commits else [])


def test_the_sdk_goes_on_after_a_kill_of_the_broker(
    broker: LocalBroker, python_sdk: Driver
) -> None:
    broker.create_topic("T", queues=1)
    producer = Producer(python_sdk, broker, "T")
    producer.send("T", "before")
    broker.kill()
    broker.start()

    def sends() -> bool:
        try:
            producer.send("T", "after")
        except RocketMQError:
            return False
        return True

    until(sends)
    assert set(texts(broker)) == {"before", "after"}


def test_namespaces_of_the_sdk_are_apart(broker: LocalBroker, python_sdk: Driver) -> None:
    broker.create_topic("T", queues=1)
    broker.create_topic("ns%T", queues=1)
    Producer(python_sdk, broker, "T", namespace="ns").send("T", "inside")
    Producer(python_sdk, broker, "T").send("T", "outside")
    assert texts(broker, "ns%T") == ["inside"]
    assert texts(broker, "T") == ["outside"]


@pytest.mark.parametrize(
    ("topic", "error"), [("missing", "fetch topic:missing route"), ("fifo", "not match")]
)
def test_the_sdk_reports_a_topic_that_does_not_fit(
    broker: LocalBroker, python_sdk: Driver, topic: str, error: str
) -> None:
    broker.create_topic("fifo", queues=1, attributes={"message.type": "FIFO"})
    producer = Producer(python_sdk, broker, "fifo")
    with pytest.raises(RocketMQError, match=error):
        producer.send(topic, "x")


# --- The interface ---

Place = tuple[str, int]


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[Place, object]]:
    """Yields the numbers of fields and values, with what they mean on the wire."""
    pending: list[tuple[str, DescriptorProto]] = [(each.name, each) for each in file.message_type]
    enums: list[tuple[str, EnumDescriptorProto]] = [(each.name, each) for each in file.enum_type]
    while pending:
        name, message = pending.pop()
        pending += [(f"{name}.{each.name}", each) for each in message.nested_type]
        enums += [(f"{name}.{each.name}", each) for each in message.enum_type]
        for field in message.field:
            oneof = ""
            if field.HasField("oneof_index"):
                oneof = message.oneof_decl[field.oneof_index].name
            kind = (field.name, field.type, field.type_name, field.label, oneof)
            yield (name, field.number), (*kind, field.proto3_optional)
    for name, enum in enums:
        for value in enum.value:
            yield (name, value.number), value.name
    for service in file.service:
        for method in service.method:
            yield (
                (f"{service.name}/{method.name}", 0),
                (
                    *(method.input_type, method.output_type),
                    *(method.client_streaming, method.server_streaming),
                ),
            )


def test_the_interface_of_the_sdk_is_part_of_ours(python_sdk: Driver) -> None:
    encoded = python_sdk.ask("descriptors")["files"]
    theirs = [FileDescriptorProto.FromString(base64.b64decode(each)) for each in encoded]
    ours = [
        FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb)
        for each in (definition_pb2, service_pb2)
    ]
    mine = {place: what for file in ours for place, what in messages_of(file)}
    found = {place: what for file in theirs for place, what in messages_of(file)}
    assert len(found) > 300
    assert {place: mine.get(place) for place in found} == found

"""Names in requests: each has a rule, which is applied before anything else."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import name_rules
from rocketpy_broker.server.rocketpy_v1.name_rules import RULES, EntriesMax, NameRule, Names, Texts
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2
from tests.broker.runtime.test_request_sizes import METHODS, first_answer
from tests.support.broker.running_broker import StartBroker


def fields_of(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields each field of a message and of its parts, with its key among the rules."""
    for field in message.fields:
        yield f"{message.name}.{field.name}", field
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from fields_of(field.message_type)


def rule_of(key: str) -> NameRule | None:
    rule = RULES.get(key)
    return rule.rule if isinstance(rule, Texts) else rule if isinstance(rule, NameRule) else None


def paths_of(message: Any) -> Iterator[tuple[list[str], NameRule]]:
    """Yields the path of each field that is a name, with its rule."""
    for field in message.fields:
        rule = rule_of(f"{message.name}.{field.name}")
        if rule is not None:
            yield [field.name], rule
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from (([field.name, *path], rule) for path, rule in paths_of(field.message_type))


def fields_with(message: Any, path: list[str], text: str) -> dict[str, Any]:
    """Returns the fields of a message with this name at `path`; its other names are legal."""
    fields: dict[str, Any] = {}
    for field in message.fields:
        rule = rule_of(f"{message.name}.{field.name}")
        if [field.name] == path:
            value: Any = text
        elif rule is not None:
            value = "T"
        elif path[:1] == [field.name]:
            value = fields_with(field.message_type, path[1:], text)
        else:
            continue
        fields[field.name] = [value] if field.is_repeated else value
    return fields


@pytest.mark.parametrize("name", METHODS)
def test_n12_every_text_of_every_request_has_a_rule(name: str) -> None:
    """Covers lists of parts with names, which have a bound, too."""
    message: Any = METHODS[name].input_type
    keys = {key for key, field in fields_of(message) if name_rules.needs_rule(field)}
    assert keys <= RULES.keys()
    Names(message)


def test_n12_every_rule_is_of_a_field() -> None:
    fields = {key for method in METHODS.values() for key, _ in fields_of(method.input_type)}
    assert RULES.keys() <= fields


def test_n12_a_request_with_a_new_name_cannot_be_served() -> None:
    file = FileDescriptorProto(name="new.proto", package="new", syntax="proto3")
    message = file.message_type.add(name="NewRequest")
    field = message.field.add(name="topic", number=1)
    field.type, field.label = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.LABEL_OPTIONAL
    pool = DescriptorPool()
    pool.Add(file)
    with pytest.raises(LookupError, match=r"NewRequest\.topic has no rule"):
        Names(pool.FindMessageTypeByName("new.NewRequest"))


@pytest.mark.parametrize("name", METHODS)
async def test_n12_an_illegal_name_is_answered_before_anything_else(
    start_broker: StartBroker, name: str
) -> None:
    """Covers requests for another store, and requests that are wrong in other ways."""
    method: Any = METHODS[name]
    request = GetMessageClass(method.input_type)
    async with start_broker() as running:
        for path, rule in paths_of(method.input_type):
            texts = ["x" * (rule.size_max + 1), *(["a\nb"] if not rule.is_legal("a\nb") else [])]
            for text in texts:
                fields = fields_with(method.input_type, path, text)
                if "store_id" in method.input_type.fields_by_name:
                    fields["store_id"] = "of another store"
                answer = await first_answer(running, method, request(**fields).SerializeToString())
                assert answer.status.code == ResponseCode.INVALID_PARAMETER, path
                assert rule.accepted in answer.status.remark, path
                assert repr(text)[:20] in answer.status.remark, path
        assert list(running.broker.services.topics.list(include_system=False)) == []


@pytest.mark.parametrize(
    ("message", "field", "longest"),
    [
        (broker_pb2.AppendRequest(), "topic", "T" * 127),
        (broker_pb2.PullRequest(topic="T"), "consumer_group", "g" * 255),
        (broker_pb2.CommitOffsetsRequest(), "consumer_group", "g" * 120),
        (broker_pb2.PullRequest(), "topic", "%RETRY%orders.eu+" + "t" * 238),
        (groups_pb2.NoticesRequest(), "client_id", "ä" * 127),
        (admin_pb2.QueryMessageRequest(topic="T"), "key", "ä" * 32_767),
    ],
)
def test_n12_the_longest_name_is_legal_and_no_longer_one(
    message: Any, field: str, longest: str
) -> None:
    rules = Names(message.DESCRIPTOR)
    setattr(message, field, longest)
    rules.check(message)
    setattr(message, field, longest + longest[-1])
    with pytest.raises(BrokerError) as refused:
        rules.check(message)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "key", [key for key, rule in RULES.items() if isinstance(rule, EntriesMax)]
)
def test_n12_a_list_of_parts_with_names_is_bounded(key: str) -> None:
    """Asserts that the bound is checked before the names."""
    name, field = key.split(".")
    found = [m for method in METHODS.values() for m in messages_of(method.input_type)]
    message = GetMessageClass(next(each for each in found if each.name == name))()
    rule = RULES[key]
    assert isinstance(rule, EntriesMax)
    for each, other in (
        (each, rule_of(f"{name}.{each.name}")) for each in message.DESCRIPTOR.fields
    ):
        if other is not None and not each.is_repeated:
            setattr(message, each.name, "T")
    for _ in range(rule.count + 1):
        getattr(message, field).add()
    with pytest.raises(BrokerError, match=f"number of {field} is {rule.count + 1}, accepted is"):
        Names(message.DESCRIPTOR).check(message)


def messages_of(message: Any) -> Iterator[Any]:
    yield message
    for field in message.fields:
        if field.message_type is not None:
            yield from messages_of(field.message_type)


class LookedAt(str):
    """A name that counts the looks at its length, which come before its characters."""

    __slots__ = ("looks",)

    def __init__(self, _text: str) -> None:
        self.looks = 0

    def __len__(self) -> int:
        self.looks += 1
        return super().__len__()


def test_n12_a_name_is_looked_at_once_however_often_a_list_has_it() -> None:
    topics = [LookedAt(topic) for topic in ("T", "U") for _ in range(500)]
    names = Names(broker_pb2.TopicQueue.DESCRIPTOR)
    names.check_all([SimpleNamespace(topic=topic, queue_id=0) for topic in topics])
    assert [topic for topic in topics if topic.looks] == ["T", "U"]


def test_n12_lists_within_parts_are_counted_in_all_before_a_name_is_looked_at() -> None:
    consumers = [
        groups_pb2.ConsumerData(
            consumer_group=f"not legal {group}",
            subscriptions=[groups_pb2.Subscription(topic=f"T{number}") for number in range(200)],
        )
        for group in range(11)
    ]
    request = groups_pb2.HeartbeatRequest(client_id="c", consumers=consumers)
    with pytest.raises(BrokerError, match="number of subscriptions is 2200, accepted is 2000"):
        Names(request.DESCRIPTOR).check(request)


def test_n12_a_name_is_remembered_only_while_there_are_few() -> None:
    rules = Names(broker_pb2.PullRequest.DESCRIPTOR)
    for number in range(2_000):
        rules.check(broker_pb2.PullRequest(topic=f"T{number}"))
    assert [len(legal) for *_, legal in rules._texts] == [1_000, 1]
    for _ in range(2):
        with pytest.raises(BrokerError):
            rules.check(broker_pb2.PullRequest(topic="a\nb"))

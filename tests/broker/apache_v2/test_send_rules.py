"""Rules of sent messages, their order, and their codes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy_broker.server.apache_v2.property_names import RESERVED_NAMES
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.configs import TopicConfig
from tests.broker.apache_v2.test_routes import create
from tests.support.broker.clients.apache_client import BORN_MS, ApacheClient, message
from tests.support.broker.running_broker import StartBroker
from tests.support.documents import TOP

DAY_MS = 86_400_000
Change = Callable[[v2.Message], object]


def system(**fields: Any) -> Change:
    """Returns a change of a message's system properties."""
    return lambda each: each.system_properties.MergeFrom(v2.SystemProperties(**fields))


def user(**properties: str) -> Change:
    return lambda each: each.user_properties.update(properties)


def body(data: bytes) -> Change:
    return lambda each: setattr(each, "body", data)


def at(ms_from_now: int) -> Change:
    """Returns a change of a message's delivery time."""

    def change(each: v2.Message) -> None:
        each.system_properties.delivery_timestamp.FromMilliseconds(BORN_MS + ms_from_now)

    return change


def recovery(seconds: int) -> Change:
    def change(each: v2.Message) -> None:
        each.system_properties.message_type = v2.TRANSACTION
        each.system_properties.orphaned_transaction_recovery_duration.seconds = seconds

    return change


ILLEGAL: list[tuple[str, Change, v2.Code]] = [
    ("empty body", body(b""), v2.MESSAGE_BODY_EMPTY),
    ("large body", body(bytes(4_194_305)), v2.MESSAGE_BODY_TOO_LARGE),
    (
        "many properties",
        user(**{f"p{number}": "v" for number in range(129)}),
        v2.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    ("reserved property", user(UNIQ_KEY="v"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control in a name", user(**{"a\x01b": "v"}), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control in a value", user(a="b\x02"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("late control character", user(a="b\x9f"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("empty name", user(**{"": "v"}), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("empty tag", system(tag=""), v2.ILLEGAL_MESSAGE_TAG),
    ("blank tag", system(tag=" "), v2.ILLEGAL_MESSAGE_TAG),
    ("tag with a bar", system(tag="a|b"), v2.ILLEGAL_MESSAGE_TAG),
    ("tag with a control", system(tag="a\n"), v2.ILLEGAL_MESSAGE_TAG),
    ("blank key", system(keys=["a", " "]), v2.ILLEGAL_MESSAGE_KEY),
    ("key with a control", system(keys=["a\x00"]), v2.ILLEGAL_MESSAGE_KEY),
    (
        "large properties",
        user(a="ä" * 8_192),
        v2.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    ("blank id", system(message_id=" "), v2.ILLEGAL_MESSAGE_ID),
    ("long id", system(message_id="i" * 256), v2.ILLEGAL_MESSAGE_ID),
    ("long recovery", recovery(3_601), v2.BAD_REQUEST),
    ("late delivery", at(DAY_MS + 1), v2.ILLEGAL_DELIVERY_TIME),
    ("blank group", system(message_group=" "), v2.ILLEGAL_MESSAGE_GROUP),
    ("long group", system(message_group="ä" * 32), v2.ILLEGAL_MESSAGE_GROUP),
    ("group with a control", system(message_group="a\x7f"), v2.ILLEGAL_MESSAGE_GROUP),
    ("lite topic", system(lite_topic="l"), v2.UNSUPPORTED),
    ("lite type", system(message_type=v2.LITE), v2.UNSUPPORTED),
    ("type of a later version", system(message_type=99), v2.BAD_REQUEST),
    ("encoding of a later version", system(body_encoding=99), v2.BAD_REQUEST),
    ("separator in the trace", system(trace_context="a\x01b"), v2.BAD_REQUEST),
]


@pytest.mark.parametrize(
    ("change", "code"), [pytest.param(*rest, id=name) for name, *rest in ILLEGAL]
)
async def test_an_illegal_message_has_its_code_and_nothing_is_stored(
    change: Change, code: v2.Code, apache: ApacheClient
) -> None:
    await create(apache, "t")
    before = apache.running.broker.store.positions().log_end
    illegal = message("t")
    change(illegal)
    response = await apache.send(illegal)
    assert response.status.code == code, response.status.message
    assert not any(entry.message_id for entry in response.entries)
    assert apache.running.broker.store.positions().log_end == before


LEGAL: list[tuple[str, Change]] = [
    ("largest body", body(bytes(4_194_304))),
    ("most properties", user(**{f"p{number}": "v" for number in range(128)})),
    ("largest properties", user(a="ä" * 8_191)),
    ("empty key", system(keys=["", "a"])),
    ("longest group", system(message_group="ä" * 31 + "x")),
    ("longest id", system(message_id="i" * 255)),
    ("latest delivery", at(DAY_MS)),
    ("past delivery", at(-5_000)),
    ("longest recovery", recovery(3_600)),
    ("encoding not set", system(body_encoding=v2.ENCODING_UNSPECIFIED)),
]


@pytest.mark.parametrize("change", [pytest.param(rest, id=name) for name, rest in LEGAL])
async def test_a_message_at_a_limit_is_stored(change: Change, start_broker: StartBroker) -> None:
    async with start_broker(commit_log_segment_bytes=16 << 20) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        legal = message("t")
        change(legal)
        response = await apache.send(legal)
        assert response.status.code == v2.OK, response.status.message
        (entry,) = response.entries
        assert entry.status == v2.Status(code=v2.OK, message="OK")
        assert entry.message_id == legal.system_properties.message_id


def test_reserved_names_include_the_documented_ones() -> None:
    """Reads the table of docs/design/grpc_v2_semantics.md section 7.1."""
    text = (TOP / "docs/design/grpc_v2_semantics.md").read_text(encoding="utf-8")
    table = text.partition("| Purpose | Keys |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"[A-Z0-9_]{3,}#?", table))
    assert len(documented) > 45
    assert documented <= RESERVED_NAMES


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("unknown", v2.TOPIC_NOT_FOUND),
        ("a.b", v2.ILLEGAL_TOPIC),
        ("", v2.ILLEGAL_TOPIC),
        ("SCHEDULE_TOPIC_XXXX", v2.ILLEGAL_TOPIC),
        ("read-only", v2.FORBIDDEN),
        ("without-queues", v2.FORBIDDEN),
    ],
)
async def test_a_topic_that_takes_no_message_has_its_code(
    name: str, code: v2.Code, apache: ApacheClient
) -> None:
    await create(apache, "read-only", perm=4)
    table = apache.running.broker.services.topics._table
    table.note({"without-queues": TopicEntry(TopicConfig("without-queues", 0, 0))})
    response = await apache.send(message(name))
    assert (response.status.code, len(response.entries)) == (code, 0)


async def test_requests_without_messages_or_with_several_topics_are_corrupted(
    apache: ApacheClient,
) -> None:
    await create(apache, "t")
    await create(apache, "ns%t")
    assert (await apache.send()).status.code == v2.MESSAGE_CORRUPTED
    response = await apache.send(message("t"), message("u"))
    assert response.status.code == v2.MESSAGE_CORRUPTED
    other = message("t")
    other.topic.resource_namespace = "ns"
    assert (await apache.send(message("t"), other)).status.code == v2.MESSAGE_CORRUPTED


async def test_earlier_rules_win(apache: ApacheClient) -> None:
    """Follows the order of docs/design/grpc_v2_semantics.md section 7.1."""
    await create(apache, "fifo", kind="FIFO", perm=4)
    wrong = message("fifo")
    names = ["large body", "reserved property", "blank tag", "blank key", "blank id", "blank group"]
    changes = {name: (change, code) for name, change, code in ILLEGAL}
    steps = [changes[name] for name in names]
    for change, _ in steps:
        change(wrong)
    fixes: list[Change] = [
        body(b"x"),
        lambda each: each.user_properties.clear(),
        lambda each: each.system_properties.ClearField("tag"),
        lambda each: each.system_properties.ClearField("keys"),
        lambda each: setattr(each.system_properties, "message_id", "id"),
        lambda each: setattr(each.system_properties, "message_group", ""),
    ]
    for (_, code), fix in zip(steps, fixes, strict=True):
        assert (await apache.send(wrong)).status.code == code
        fix(wrong)
    assert (await apache.send(wrong)).status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    wrong.system_properties.message_group = "g"
    assert (await apache.send(wrong)).status.code == v2.FORBIDDEN


@pytest.mark.parametrize(
    "changes",
    [
        (system(message_group="g"), at(5_000)),
        (system(message_group="g"), system(priority=1)),
        (recovery(0), at(5_000)),
        (recovery(0), system(message_group="g")),
    ],
)
async def test_features_of_two_types_are_refused(
    changes: tuple[Change, ...], apache: ApacheClient
) -> None:
    await create(apache, "t")
    wrong = message("t")
    for change in changes:
        change(wrong)
    response = await apache.send(wrong)
    assert response.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


MESSAGES: dict[str, Change] = {
    "NORMAL": lambda each: None,
    "FIFO": system(message_group="g"),
    "DELAY": at(5_000),
    "TRANSACTION": recovery(0),
    "PRIORITY": system(priority=1),
}


@pytest.mark.parametrize("kind", MESSAGES)
async def test_a_topic_with_a_type_takes_messages_of_that_type(
    kind: str, apache: ApacheClient
) -> None:
    await create(apache, "t", kind=kind)
    for name, change in MESSAGES.items():
        each = message("t")
        change(each)
        code = v2.OK if name == kind else v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await apache.send(each)).status.code == code, name


async def test_without_the_check_of_types_all_are_taken(start_broker: StartBroker) -> None:
    async with start_broker(enable_topic_message_type_check=False) as running:
        apache = ApacheClient(running)
        await create(apache, "t", kind="FIFO")
        assert (await apache.send(message("t"))).status.code == v2.OK

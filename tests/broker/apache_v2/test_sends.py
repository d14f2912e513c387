"""SendMessage: its rules with their codes, the records that it stores, and its answers."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.errors import FlushTimeoutError, StoreBusyError
from rocketpy_broker.server.apache_v2.property_names import RESERVED_NAMES
from rocketpy_broker.server.apache_v2.sends.group_queue import consistent_hash, queue_of_group
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.record.sys_flag import COMPRESSED
from tests.broker.apache_v2.test_routes import create
from tests.broker.delay.test_levels import advance, visible
from tests.support.broker.apache_client import BORN_MS, ApacheClient, message, records, topic
from tests.support.broker.running_broker import StartBroker, until
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
    ("unknown encoding", system(body_encoding=v2.ENCODING_UNSPECIFIED)),
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
    table.note({"without-queues": TopicConfig("without-queues", 0, 0)})
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
    """The order of docs/design/grpc_v2_semantics.md section 7.1."""
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


async def test_a_record_has_all_parts_of_its_message(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t", b"body", tag="a", keys=["k1", "k2"], trace_context="trace", born_host="pc")
    sent.user_properties.update({"color": "red", "size": "10"})
    sent.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    await apache.send(sent)
    (record,) = await records(apache.running, "t")
    assert record.body == b"body"
    assert record.born_timestamp_ms == 1_700_000_000_123
    assert str(record.born_host.address) == "127.0.0.1"
    assert record.properties == {
        "color": "red",
        "size": "10",
        "UNIQ_KEY": sent.system_properties.message_id,
        "TAGS": "a",
        "KEYS": "k1 k2",
        "TRACE_CONTEXT": "trace",
        "__BORNHOST": "pc",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_missing_birth_and_host_are_the_broker_s_clock_and_the_peer(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t", born_host=" ")
    sent.system_properties.ClearField("born_timestamp")
    await apache.send(sent)
    (record,) = await records(apache.running, "t")
    assert record.born_timestamp_ms == apache.running.clock.now_ms()
    assert record.properties["__BORNHOST"] == "127.0.0.1"


async def test_a_compressed_body_is_kept_as_it_is(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    compressed = gzip.compress(b"body")
    await apache.send(message("t", compressed, body_encoding=v2.GZIP))
    (record,) = await records(apache.running, "t")
    assert record.body == compressed
    assert record.sys_flag & COMPRESSED


async def test_a_priority_is_a_property(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await apache.send(message("t", priority=0), message("t", priority=3))
    found = await records(apache.running, "t")
    assert [each.properties["_SYS_MSG_PRIORITY_"] for each in found] == ["0", "3"]


async def test_messages_without_a_group_go_round_the_queues(apache: ApacheClient) -> None:
    await create(apache, "t", read=4, write=4)
    for number in range(8):
        assert (await apache.send(message("t", b"%d" % number))).status.code == v2.OK
    counts = [len(await records(apache.running, "t", queue)) for queue in range(4)]
    assert counts == [2, 2, 2, 2]


async def test_messages_of_a_group_stay_in_one_queue_in_their_order(apache: ApacheClient) -> None:
    await create(apache, "t", read=4, write=4)
    for number in range(12):
        group = f"group-{number % 3}"
        await apache.send(message("t", b"%d" % number, message_group=group))
    for number in range(3):
        queue_id = queue_of_group(f"group-{number}", 4)
        found = await records(apache.running, "t", queue_id)
        mine = [
            each.body for each in found if each.properties["__SHARDINGKEY"] == f"group-{number}"
        ]
        assert mine == [b"%d" % each for each in range(number, 12, 3)]


def test_the_queue_of_a_group_is_that_of_rocketmq_s_proxy() -> None:
    """Compares values of Guava's own test of its consistent hash."""
    golden = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [consistent_hash(number, 100) for number in range(20)] == golden
    assert consistent_hash(10_863_919_174_838_991, 11) == 6
    assert {queue_of_group(f"g{number}", 3) for number in range(50)} == {0, 1, 2}
    moved = [
        name
        for name in (f"g{number}" for number in range(1_000))
        if queue_of_group(name, 10) != queue_of_group(name, 11)
    ]
    assert 40 < len(moved) < 140


async def test_an_answer_has_one_entry_for_each_message_in_order(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    sent = [message("t", b"%d" % number) for number in range(5)]
    response = await apache.send(*sent)
    assert response.status.code == v2.OK
    ids = [each.system_properties.message_id for each in sent]
    assert [each.message_id for each in response.entries] == ids
    assert [each.transaction_id for each in response.entries] == ids
    assert [each.offset for each in response.entries] == [0, 1, 2, 3, 4]
    assert [each.recall_handle for each in response.entries] == 5 * [""]
    assert [each.body for each in await records(apache.running, "t")] == [
        each.body for each in sent
    ]


async def test_more_messages_than_the_limit_are_refused(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    assert (await apache.send(*(128 * [message("t")]))).status.code == v2.OK
    response = await apache.send(*(129 * [message("t")]))
    assert (response.status.code, len(response.entries)) == (v2.PAYLOAD_TOO_LARGE, 0)
    assert len(await records(apache.running, "t")) == 128


async def test_a_large_request_with_many_parts_is_not_decoded(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    wide = message("t", bytes(600_000))
    wide.system_properties.keys.extend(["k"] * 5_000)
    response = await apache.send(wide)
    assert response.status.code == v2.PAYLOAD_TOO_LARGE
    assert "parts" in response.status.message


async def test_a_message_that_is_stored_but_not_confirmed_has_no_ids(
    apache: ApacheClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(apache, "t", read=1, write=1)

    async def late(_sends: SendService, _stored: object) -> None:
        raise FlushTimeoutError(5_000)

    monkeypatch.setattr(SendService, "acknowledged", late)
    response = await apache.send(message("t"))
    assert response.status.code == v2.MASTER_PERSISTENCE_TIMEOUT
    (entry,) = response.entries
    assert (entry.status.code, entry.message_id) == (v2.MASTER_PERSISTENCE_TIMEOUT, "")
    assert len(await records(apache.running, "t")) == 1


async def test_entries_with_different_results_say_so_at_the_top(
    apache: ApacheClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(apache, "t", read=1, write=1)
    append = SendService.append

    async def partly(sends: SendService, name: str, queue: int, record: bytes, size: bytes) -> Any:
        if b"busy" in record:
            raise StoreBusyError(1, 1)
        return await append(sends, name, queue, record, size)

    monkeypatch.setattr(SendService, "append", partly)
    response = await apache.send(message("t", b"ok"), message("t", b"busy"))
    assert response.status.code == v2.MULTIPLE_RESULTS
    assert [each.status.code for each in response.entries] == [v2.OK, v2.TOO_MANY_REQUESTS]
    response = await apache.send(message("t", b"busy"))
    assert response.status.code == v2.TOO_MANY_REQUESTS


async def test_namespaces_are_apart(apache: ApacheClient) -> None:
    for name in ("t", "a%t", "b%t"):
        await create(apache, name, read=1, write=1)
    apache.namespace = "a"
    await apache.send(message("t", b"of a"))
    own = message("t", b"of b")
    own.topic.resource_namespace = "b"
    await apache.send(own)
    apache.namespace = ""
    await apache.send(message("t", b"of none"))
    found = {name: await records(apache.running, name) for name in ("t", "a%t", "b%t")}
    assert {name: [each.body for each in some] for name, some in found.items()} == {
        "t": [b"of none"],
        "a%t": [b"of a"],
        "b%t": [b"of b"],
    }


# --- Delays and recalls ---


async def delayed(apache: ApacheClient, ms: int, data: bytes = b"later") -> Any:
    """Returns the entry of a message that is delivered in `ms`."""
    each = message("t", data)
    now_ms = apache.running.clock.now_ms()
    each.system_properties.delivery_timestamp.FromMilliseconds(now_ms + ms)
    response = await apache.send(each)
    assert response.status.code == v2.OK, response.status.message
    return response.entries[0]


async def recalled(apache: ApacheClient, handle: str, name: str = "t") -> Any:
    request = service_pb2.RecallMessageRequest(topic=topic(name), recall_handle=handle)
    return await apache.call("RecallMessage", request)


async def test_a_message_with_a_delivery_time_waits_for_it(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await delayed(apache, 10_000)
    waiting = apache.running.broker.store.range_of(TIMER_QUEUE)
    assert waiting.max_offset == 1
    await advance(apache.running, 5_000)
    assert await records(apache.running, "t") == []
    await advance(apache.running, 6_000)
    await until(lambda: visible(apache.running, "t", 0) == 1)
    (record,) = await records(apache.running, "t")
    assert record.body == b"later"
    assert record.properties["TIMER_DELIVER_MS"] == str(BORN_MS + 10_000)


async def test_a_recalled_message_is_not_delivered(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    first, second = (
        await delayed(apache, 10_000, b"first"),
        await delayed(apache, 10_000, b"second"),
    )
    response = await recalled(apache, first.recall_handle)
    assert response.status.code == v2.OK, response.status.message
    assert response.message_id == first.message_id
    await advance(apache.running, 12_000)
    await until(lambda: visible(apache.running, "t", 0) == 1)
    assert [each.body for each in await records(apache.running, "t")] == [b"second"]
    late = await recalled(apache, second.recall_handle)
    assert late.status.code == v2.ILLEGAL_DELIVERY_TIME


async def test_wrong_handles_have_their_codes(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await create(apache, "u", read=1, write=1)
    await create(apache, "fifo", kind="FIFO")
    handle = (await delayed(apache, 10_000)).recall_handle
    assert (await recalled(apache, "nonsense")).status.code == v2.BAD_REQUEST
    assert (await recalled(apache, handle, "u")).status.code == v2.BAD_REQUEST
    assert (await recalled(apache, handle, "unknown")).status.code == v2.TOPIC_NOT_FOUND
    assert (await recalled(apache, handle, "a.b")).status.code == v2.ILLEGAL_TOPIC
    conflict = await recalled(apache, handle, "fifo")
    assert conflict.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_a_broker_without_recalls_says_so(start_broker: StartBroker) -> None:
    async with start_broker(recall_message_enable=False) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        handle = (await delayed(apache, 10_000)).recall_handle
        assert (await recalled(apache, handle)).status.code == v2.NOT_IMPLEMENTED


async def test_a_full_timer_asks_to_come_later(start_broker: StartBroker) -> None:
    async with start_broker(timer_pending_max=1) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        await delayed(apache, 10_000)
        each = message("t")
        each.system_properties.delivery_timestamp.FromMilliseconds(running.clock.now_ms() + 10_000)
        assert (await apache.send(each)).status.code == v2.TOO_MANY_REQUESTS


async def test_a_broker_without_a_timer_refuses_delivery_times(start_broker: StartBroker) -> None:
    options = SystemTopicOptions(timer_wheel_enable=False)
    async with start_broker(system_topics=options) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        each = message("t")
        each.system_properties.delivery_timestamp.FromMilliseconds(running.clock.now_ms() + 10_000)
        response = await apache.send(each)
        assert response.status.code == v2.INTERNAL_SERVER_ERROR
        assert "timer" in response.status.message

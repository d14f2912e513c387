"""Single messages, counters and cleaning, through real gRPC."""

from __future__ import annotations

import asyncio
import errno
from itertools import product
from typing import Any, NoReturn

import numpy as np
import pytest

from rocketpy_broker.services.admin.store_admin_service import ANSWER_BYTES_MAX, UNUSED_NAMED_MAX
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Host, Record, decode_record, encode_offset_message_id
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import before_call, failing

KEYS = ["a b", "b", "c"]
UNIQUE = ["U0", "U1", "U2"]


def records_of(response: admin_pb2.MessagesResponse) -> list[Record]:
    assert response.status.code == ResponseCode.SUCCESS, response.status.remark
    position, records = 0, []
    for size in np.frombuffer(response.record_sizes, ">i4").tolist():
        records.append(decode_record(response.records, position).record)
        position += size
    assert position == len(response.records)
    return records


# At 127.0.0.1:1, where no broker is.
OTHER_ID = "7F00000100000001{:016X}"


async def filled(running: RunningBroker) -> None:
    await running.create_topic("T")
    block = wire_block("T", [b"0", b"1", b"2"], keys=KEYS, properties={"UNIQ_KEY": UNIQUE})
    await running.append_block("T", 1, block)


async def query(running: RunningBroker, **fields: Any) -> admin_pb2.MessagesResponse:
    response: admin_pb2.MessagesResponse = await running.admin.QueryMessage(
        admin_pb2.QueryMessageRequest(**{"topic": "T", **fields})
    )
    return response


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize(
    ("key", "bodies"),
    [("a", [b"0"]), ("b", [b"0", b"1"]), ("U2", [b"2"]), ("a b", []), ("nowhere", [])],
)
async def test_s05_messages_are_found_by_key_as_soon_as_they_are_acknowledged(
    start_broker: StartBroker, flush: FlushDiskType, key: str, bodies: list[bytes]
) -> None:
    async with start_broker(flush) as running:
        await filled(running)
        assert [record.body for record in records_of(await query(running, key=key))] == bodies


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_s05_messages_are_found_by_tag_and_by_nothing_that_looks_like_one(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await running.create_topic("Other")
        for topic, body, tag, key in (
            ("T", b"0", "TagA", "k"),
            ("T", b"1", "Größe 😀", "k"),
            ("Other", b"2", "TagA", "k"),
            ("T", b"3", None, "T#TagA"),
            ("T", b"4", "TagA", "TagA"),
        ):
            await running.append_block(topic, 0, wire_block(topic, [body], tags=tag, keys=[key]))
        found = {
            tag: [record.body for record in records_of(await query(running, tag=tag))]
            for tag in ("TagA", "Größe 😀", "Größe", "k", "T#TagA", "nobody's")
        }
        assert found == {
            "TagA": [b"0", b"4"],
            "Größe 😀": [b"1"],
            **{name: [] for name in ("Größe", "k", "T#TagA", "nobody's")},
        }
        assert [one.body for one in records_of(await query(running, key="T#TagA"))] == [b"3"]
        newest = await query(running, tag="TagA", count_max=1)
        assert [record.body for record in records_of(newest)] == [b"4"]


async def test_s05_a_time_span_and_a_count_bound_what_is_found(running: RunningBroker) -> None:
    await running.create_topic("T")
    for body in (b"early", b"late"):
        await running.append_block("T", 0, wire_block("T", [body], keys=["k"]))
        running.clock.advance(10_000)
    between = running.clock.now_ms() - 15_000
    late = await query(running, key="k", begin_timestamp_ms=between)
    early = await query(running, key="k", end_timestamp_ms=between)
    newest = await query(running, key="k", count_max=1)
    found = [[record.body for record in records_of(each)] for each in (late, early, newest)]
    assert found == [[b"late"], [b"early"], [b"late"]]


@pytest.mark.parametrize(
    ("body_bytes", "wanted"), [(2, [64, 6]), (ANSWER_BYTES_MAX // 14, [*[13] * 5, 5])]
)
async def test_s05_pages_of_a_query_have_every_message_once(
    start_broker: StartBroker, body_bytes: int, wanted: list[int]
) -> None:
    """Covers pages that the size of their records limits, and keys of other messages."""
    bodies = [(b"%02d" % number).ljust(body_bytes) for number in range(70)]
    found: list[bytes] = []
    sizes: list[int] = []
    before = 0
    async with start_broker(commit_log_segment_bytes=ANSWER_BYTES_MAX) as running:
        await running.create_topic("T")
        for begin in range(0, 70, 10):
            part = wire_block("T", bodies[begin : begin + 10], keys=["k"] * 10)
            await running.append_block("T", 0, part)
            await running.append_block("T", 1, wire_block("T", [b"other"], keys=["other"]))
        while before or not sizes:
            page = await query(running, key="k", count_max=1_000, before_offset=before)
            records = records_of(page)
            found[:0] = [record.body for record in records]
            sizes.append(len(records))
            before = page.next_before_offset
    assert sizes == wanted
    assert [body[:2] for body in found] == [body[:2] for body in bodies]
    assert {len(body) for body in found} == {body_bytes}


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"key": "k", "before_offset": -1}, ResponseCode.INVALID_PARAMETER, "before_offset is -1"),
        ({"key": "k", "topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "does not exist"),
        ({"key": ""}, ResponseCode.INVALID_PARAMETER, "key is ''"),
        ({"key": "k", "tag": "t"}, ResponseCode.INVALID_PARAMETER, "tag is 't'"),
        ({"tag": "t" * 32_768}, ResponseCode.INVALID_PARAMETER, "up to 32767 characters"),
        ({"key": "k", "count_max": -1}, ResponseCode.INVALID_PARAMETER, "count_max is -1"),
        ({"key": "k", "begin_timestamp_ms": -1}, 29, "begin_timestamp_ms is -1, accepted is 0"),
        ({"key": "k", "begin_timestamp_ms": 9, "end_timestamp_ms": 8}, 29, "end_timestamp_ms is 8"),
    ],
)
async def test_s05_a_query_that_makes_no_sense_is_refused(
    fields: dict[str, object], code: int, said: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    status = (await query(running, **fields)).status
    assert status.code == code
    assert said in status.remark


async def test_s05_a_message_is_found_by_its_offset_message_id(running: RunningBroker) -> None:
    await filled(running)
    [record] = records_of(await query(running, key="c"))
    message_id = encode_offset_message_id(record.store_host, record.physical_offset)
    found = await running.admin.ViewMessage(admin_pb2.ViewMessageRequest(offset_msg_id=message_id))
    assert [each.body for each in records_of(found)] == [b"2"]


@pytest.mark.parametrize(
    ("message_id", "code", "said"),
    [
        ("no id", ResponseCode.INVALID_PARAMETER, "accepted is 32 or 56 hexadecimal digits"),
        ("7F00", ResponseCode.INVALID_PARAMETER, "accepted is 32 or 56 hexadecimal digits"),
        (OTHER_ID.format(1), ResponseCode.QUERY_NOT_FOUND, "it names the broker at 127.0.0.1:1;"),
        (OTHER_ID.format(1 << 40), ResponseCode.QUERY_NOT_FOUND, "the broker at 127.0.0.1:1;"),
        # A msgId's address is followed by the sender's process, and not by a port.
        ("7F0000010E4B18B4AAC20E2A3C0D0000", ResponseCode.QUERY_NOT_FOUND, "it may be a msgId"),
    ],
)
async def test_s05_an_id_of_no_message_is_refused(
    message_id: str, code: int, said: str, running: RunningBroker
) -> None:
    await filled(running)
    request = admin_pb2.ViewMessageRequest(offset_msg_id=message_id)
    response = await running.admin.ViewMessage(request)
    assert response.status.code == code
    assert message_id in response.status.remark
    assert said in response.status.remark


async def test_s05_the_id_of_another_brokers_message_is_refused_by_its_address(
    running: RunningBroker,
) -> None:
    await filled(running)
    [record] = records_of(await query(running, key="c"))
    other = Host.parse("10.0.0.5:10911")
    message_id = encode_offset_message_id(other, record.physical_offset)
    request = admin_pb2.ViewMessageRequest(offset_msg_id=message_id)
    response = await running.admin.ViewMessage(request)
    assert response.status.code == ResponseCode.QUERY_NOT_FOUND
    assert f"is of the broker at {other}" in response.status.remark
    assert f"was stored at {record.store_host}" in response.status.remark
    assert response.records == b""


async def test_s13_puts_and_gets_are_counted(running: RunningBroker) -> None:
    await filled(running)
    await running.append("T", 0, b"x")
    await running.pull(topic="T", queue_id=1)
    await running.pull(topic="T", queue_id=3)
    too_long = wire_block("T", [bytes((1 << 20) + 1)])
    refused = await running.append_block("T", 0, too_long)
    assert refused.status.code == ResponseCode.MESSAGE_ILLEGAL
    counted = await running.admin.GetStoreStatistics(admin_pb2.GetStoreStatisticsRequest())
    [topic] = counted.topics
    assert (topic.topic, topic.put_count) == ("T", 4)
    assert topic.put_bytes == counted.log_end_offset > 0
    assert sum(bucket.count for bucket in counted.put_latencies) == 2
    assert (counted.get_found_count, counted.get_message_count) == (1, 3)
    assert (counted.get_miss_count, counted.put_failed_count) == (1, 1)
    assert (counted.dispatch_behind_bytes, counted.log_begin_offset) == (0, 0)
    assert counted.flush_behind_bytes == counted.log_end_offset
    assert counted.corrupt_record_count == 0


async def test_b07_queues_of_topics_not_configured_go_on_request(running: RunningBroker) -> None:
    await filled(running)
    store = running.broker.store
    for topic in ("Orphan", "SCHEDULE_TOPIC_XXXX"):
        store.append(QueueKey(topic, 0), wire_block(topic, [b"x"]).parsed())
    request = admin_pb2.CleanUnusedTopicsRequest()
    assert list((await running.admin.CleanUnusedTopics(request)).topics) == ["Orphan"]
    assert {queue.topic for queue in store.queues()} == {"T", "SCHEDULE_TOPIC_XXXX"}
    assert not (store.config.folder / "consumequeue" / "Orphan").exists()
    assert list((await running.admin.CleanUnusedTopics(request)).topics) == []


async def test_s10_expired_segments_are_removed_on_request(running: RunningBroker) -> None:
    await running.create_topic("T")
    for _ in range(3):
        await running.append("T", 0, bytes(800_000))
    request = admin_pb2.CleanExpiredFilesRequest()
    nothing = await running.admin.CleanExpiredFiles(request)
    assert (nothing.status.code, nothing.removed_file_count) == (0, 0)


async def test_s10_a_disk_that_is_too_full_refuses_sends_until_it_is_not(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [0.95]
    monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", lambda _: used[0])
    async with start_broker() as running:
        await running.create_topic("T")
        store = running.broker.store
        store.expired_segment_count(manual=False)
        refused = await running.append("T", 0, b"x")
        assert refused.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "over the limit 90%" in refused.status.remark
        info = await running.admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())
        assert "over the limit 90%" in info.refusal
        used[0] = 0.5
        store.expired_segment_count(manual=False)
        assert (await running.append("T", 0, b"x")).status.code == ResponseCode.SUCCESS


async def test_cleaning_runs_by_the_clock_until_the_broker_stops(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passes = 0

    def used_or_fail(_folder: object) -> float:
        nonlocal passes
        passes += 1
        if passes == 1:
            raise OSError(5, "Input/output error")
        return 0.1

    async with start_broker() as running:
        monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", used_or_fail)
        for expected in (1, 2, 3):
            running.clock.advance(60_000)
            while passes < expected:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0)
        answer = await running.admin.CleanExpiredFiles(admin_pb2.CleanExpiredFilesRequest())
        assert answer.status.code == 0
    assert "cleaning failed, the broker tries again" in caplog.text


async def test_cleaning_that_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await filled(running)

    def fail(_folder: object) -> NoReturn:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", fail)
    cleaned = await running.admin.CleanExpiredFiles(admin_pb2.CleanExpiredFilesRequest())
    assert "Input/output error" in cleaned.status.remark
    running.broker.store.append(QueueKey("Gone", 0), wire_block("Gone", [b"x"]).parsed())
    before_call(monkeypatch, "fsync", "*/deletedTopics.json.tmp", failing(errno.EIO))
    unused = await running.admin.CleanUnusedTopics(admin_pb2.CleanUnusedTopicsRequest())
    assert "'Gone' could not be removed" in unused.status.remark


async def test_s12_cold_data_suggests_the_slave_where_slaves_serve(
    start_broker: StartBroker,
) -> None:
    suggested = []
    async with start_broker() as running:
        await filled(running)
    for slave_read_enable, ratio in product((False, True), (40, 0)):
        settings = {
            "slave_read_enable": slave_read_enable,
            "access_message_in_memory_max_ratio": ratio,
        }
        async with start_broker(**settings) as running:
            [answer] = await running.pull(topic="T", queue_id=1)
            suggested.append(answer.suggested_broker_id)
    assert suggested == [0, 0, 0, 1]


async def test_s05_the_index_has_the_configured_counts(start_broker: StartBroker) -> None:
    counts = {"index_slot_count": 8, "index_entry_count_max": 20}
    async with start_broker(**counts) as running:
        await filled(running)
        await query(running, key="a")
        [file] = (running.broker.store.config.folder / "index").iterdir()
        assert file.stat().st_size == IndexFormat(8, 20).file_bytes


async def test_f16_queues_without_a_topic_in_the_configuration_are_named_at_the_start(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        await filled(running)
        for number in range(UNUSED_NAMED_MAX + 1):
            topic = f"Gone{number:02d}"
            running.broker.store.append(QueueKey(topic, 0), wire_block(topic, [b"x"]).parsed())
    assert "no entry in topics.json" not in caplog.text
    async with start_broker():
        pass
    sentence = f"{UNUSED_NAMED_MAX + 1} topics have queues but no entry in topics.json: 'Gone00'"
    assert sentence in caplog.text
    assert "'Gone19', ...;" in caplog.text
    assert "'T'" not in caplog.text

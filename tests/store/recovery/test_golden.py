"""Stores written by RocketMQ's own code: opened, read, and continued here.

They are kept outside the repository; without them these tests are skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rocketpy_broker.store.index.layout import ENTRY, HEADER, IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import (
    COLUMN_TYPES,
    Record,
    RecordBlock,
    decode_offset_message_id,
    decode_record,
    encode_record,
    to_record_batch,
)
from rocketpy_proto.record.index_keys import index_hash, tag_key
from tests.support.blocks import wire_block
from tests.support.golden import GOLDEN
from tests.support.store.stores import store_in

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason="the golden stores are not here")
SCHEMA = pa.schema(list(COLUMN_TYPES.items()))
Unpack = Callable[[str], MessageStore]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Returns a function that unpacks a store and makes a MessageStore over it."""

    def make(name: str) -> MessageStore:
        archive = GOLDEN / f"rocketmq_store_{name}.tar.gz"
        subprocess.run(["tar", "-xSzf", archive, "-C", tmp_path], check=True)
        (folder,) = (path.parent for path in tmp_path.rglob("commitlog"))
        return store_in(folder, segment_bytes=65_536, queue_file_bytes=2_000)

    return make


def read(store: MessageStore, queue: QueueKey) -> list[Record]:
    """Returns all records of a queue, decoded by both forms of the codec."""
    offset = store.range_of(queue).min_offset
    records: list[Record] = []
    while True:
        result = store.get_message(queue, offset, 1 << 60, ReadLimits.of_bytes(1 << 20))
        if result.status is not GetMessageStatus.FOUND:
            return records
        data = b"".join(bytes(part) for part in result.parts)
        block = RecordBlock.parse(data, np.asarray(result.sizes))
        block.verify_body_crc()
        batch = to_record_batch(block, SCHEMA)
        for position, row in zip(block.positions.tolist(), batch.to_pylist(), strict=True):
            record = decode_record(data, position).record
            assert row["queueOffset"] == record.queue_offset
            assert dict(row["properties"]) == record.properties
            records.append(record)
        offset = result.next_offset


def test_f14_a_cleanly_stopped_store_is_read(unpack: Unpack) -> None:
    store = unpack("clean")
    result = store.open()
    assert not result.abnormal
    [first, *_] = read(store, QueueKey("TopicA", 2))
    assert first.body == b"hello"
    assert first.properties["TAGS"] == "TagA"
    assert first.properties["KEYS"] == "K1 K2  K3"
    assert first.properties["UNIQ_KEY"] == "AC11000118B4AAC2463D8D7C00000000"
    assert (first.flag, first.physical_offset) == (7, 0)
    assert (str(first.born_host), str(first.store_host)) == ("10.0.0.1:54321", "10.0.0.2:10911")
    total = sum(len(read(store, queue)) for queue in store.queues())
    assert total == 13 - 2  # the prepared and the rolled back record have no queue
    store.close()


def test_f14_every_record_is_encoded_again_to_the_same_bytes(unpack: Unpack) -> None:
    store = unpack("clean")
    store.open()
    log = store.config.folder / "commitlog" / "0".zfill(20)
    data, position, count = log.read_bytes(), 0, 0
    while data[position + 4 : position + 8] in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
        decoded = decode_record(data, position)
        assert encode_record(decoded.record) == data[position : position + decoded.size]
        position += decoded.size
        count += 1
    assert count == 13
    store.close()


def test_f14_a_crashed_store_is_recovered_and_goes_on(unpack: Unpack) -> None:
    store = unpack("crashed")
    result = store.open()
    assert result.abnormal
    assert result.records_scanned == 2_500
    for queue_id in (0, 1):
        bodies = [record.body for record in read(store, QueueKey("TopicN", queue_id))]
        assert bodies == [b"m%d" % number for number in range(queue_id, 2_500, 2)]
    queue = QueueKey("TopicN", 0)
    appended = store.append(queue, wire_block("TopicN", [b"next"]).parsed())
    assert appended.queue_offset == 1_250
    assert read(store, queue)[-1].body == b"next"
    store.close()


def entries_of(index: Path) -> list[tuple[int, int]]:
    """Returns the hash and log offset of each entry of an index file, in order."""
    data = index.read_bytes()
    count = int(np.frombuffer(data, HEADER, 1)[0]["count"])
    entries = np.frombuffer(data, ENTRY, count, IndexFormat().entries_begin)[1:]
    return list(zip(entries["hash"].tolist(), entries["physical_offset"].tolist(), strict=True))


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_s06_consume_queues_and_index_rebuilt_from_the_log_equal_rocketmqs(
    unpack: Unpack, name: str
) -> None:
    store = unpack(name)
    queues, index = store.config.folder / "consumequeue", store.config.folder / "index"
    before = {path: path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    (their_index,) = index.iterdir()
    kept = their_index.rename(store.config.folder.parent / "their-index")
    for path in before:
        path.unlink()
    (store.config.folder / "abort").touch()
    store.open()
    records = [record for queue in store.queues() for record in read(store, queue)]
    store.close()
    after = {path: path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    assert after == before
    (our_index,) = index.iterdir()
    # RocketMQ 5.3 wrote it, without entries of tags; `make interop` compares all of 5.5's bytes.
    theirs, ours = entries_of(kept), entries_of(our_index)
    tags = {
        (index_hash(record.topic, tag_key(record.properties["TAGS"])), record.physical_offset)
        for record in records
        if "TAGS" in record.properties
    }
    assert [one for one in ours if one not in tags] == theirs
    assert set(ours) - set(theirs) == tags


def test_s05_messages_of_rocketmq_are_found_by_key_and_by_id(unpack: Unpack) -> None:
    store = unpack("clean")
    store.open()
    for key in ("K1", "K2", "K3", "AC11000118B4AAC2463D8D7C00000000"):
        (found,) = store.messages.by_key("TopicA", key, 0, 1 << 60, 64)
        assert decode_record(found).record.body == b"hello"
    _, offset = decode_offset_message_id("0A00000200002A9F0000000000000000")
    found_at = store.messages.at(offset)
    assert found_at is not None
    assert decode_record(found_at).record.body == b"hello"
    store.close()

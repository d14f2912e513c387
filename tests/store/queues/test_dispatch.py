"""Dispatch of blocks with waiting and with prepared records; checksums of very many records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.log.checksums import SegmentChecksums
from rocketpy_broker.store.queues.dispatch import requests_of, topics_of
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import BlockColumns, Record, RecordBlock, encode_block, encode_record
from rocketpy_proto.record.properties import DELAY
from rocketpy_proto.record.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.blocks import wire_block

SECOND_MS, HOUR_MS = 1_000, 3_600_000
LEVELS = DelayLevels.parse()


def test_s06_the_code_of_a_waiting_message_is_when_it_is_due() -> None:
    levels = ["1", "18", "99", "0", "-4", "soon"]
    waiting = [
        encode_record(Record(SCHEDULE_TOPIC, 0, b"x", {DELAY: level}, store_timestamp_ms=5_000))
        for level in levels
    ]
    other = encode_record(Record("T", 0, b"x", {DELAY: "1"}, store_timestamp_ms=5_000))
    block = RecordBlock.parse(bytearray(b"".join([*waiting, other])))
    codes = np.full(len(block), 77)
    found: dict[str, list[int]] = {SCHEDULE_TOPIC: [], "T": []}
    for request in requests_of(block, topics_of(block), codes, 0, LEVELS):
        found[request.queue.topic] += request.units["tags_code"].tolist()
    second, two_hours = 5_000 + SECOND_MS, 5_000 + 2 * HOUR_MS
    assert found == {SCHEDULE_TOPIC: [second, two_hours, two_hours, 77, 77, 77], "T": [77]}


@pytest.mark.parametrize("flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_s06_records_without_a_place_in_a_queue_make_no_request(flag: int) -> None:
    encoded = encode_block(
        BlockColumns(body=pa.array([b"a", b"b"]), topic="T", queue_id=0, sys_flag=flag)
    )
    block = RecordBlock.parse(bytearray(encoded.data), encoded.sizes)
    assert list(requests_of(block, topics_of(block), np.zeros(2, np.int64), 0, LEVELS)) == []
    listed = wire_block("T", [b"a", b"b"]).parsed()
    (request, *_) = requests_of(listed, topics_of(listed), np.zeros(2, np.int64), 0, LEVELS)
    assert len(request.units) > 0


def test_f05_the_checksums_of_very_many_records_are_all_found_again(tmp_path: Path) -> None:
    count, size = 150_000, 100
    segment_bytes = count * size
    positions = np.arange(count, dtype=np.int64) * size
    sizes, crcs = np.full(count, size, np.int32), np.arange(count, dtype=np.int32)
    path = tmp_path / "0"
    made = SegmentChecksums(path, 0, segment_bytes)
    made.append(positions, sizes, crcs)
    made.close()
    again = SegmentChecksums(path, 0, segment_bytes)
    assert again.count == count
    assert again.lookup(positions)["crc"].tolist() == crcs.tolist()
    again.close()

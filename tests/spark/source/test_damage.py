"""Damaged or unexpected records: the source reports them, or skips them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
from pyspark.errors import PySparkException

from rocketpy_broker import LocalBroker
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.record.compression import INFLATED_BYTES_MAX
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.spark.conftest import Collected, Topic

COUNT = 50
ROTTEN = 17


def test_f05_a_damaged_record_fails_the_query_or_is_left_out(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        topic = new_topic(queues=1, broker=broker)
        bodies = [(f"body {number}.",) for number in range(COUNT)]
        frame = topic.spark.createDataFrame(bodies, "body string").coalesce(1)
        topic.write(frame)
        broker.stop()
        path = tmp_path / "store" / "commitlog" / "0".zfill(20)
        data = bytearray(path.read_bytes())
        # The topic's name follows the body: RocketMQ's own check does not cover it.
        place = data.index(b"body %d." % ROTTEN) + len(b"body 17.") + 1
        data[place] ^= 1
        path.write_bytes(data)
        broker.start()
        with pytest.raises(PySparkException, match="1 message is gone"):
            topic.bodies()
        left = topic.bodies(failOnDataLoss=False)
        assert sorted(left) == sorted(f"body {n}." for n in range(COUNT) if n != ROTTEN)
        assert "differs from its checksum" in broker.log_text()
        assert len(list((tmp_path / "store" / "rocketpy" / "quarantine").iterdir())) == 1


def send_records(topic: Topic, *records: Record) -> None:
    """Appends records unchanged."""
    encoded = [encode_record(record) for record in records]
    request = broker_pb2.AppendRequest(
        topic=topic.name,
        records=b"".join(encoded),
        record_sizes=np.array([len(one) for one in encoded], ">i4").tobytes(),
    )
    with grpc.insecure_channel(topic.broker.endpoint) as channel:
        [answer] = broker_pb2_grpc.BrokerStub(channel).Append(iter([request]))
    assert answer.status.code == 0, answer.status.remark


def test_s11_a_query_goes_on_behind_messages_that_cannot_be_taken_as_they_are(
    topic: Topic, collected: Collected
) -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    times = (-(1 << 63), (1 << 63) - 1, 1 << 52)
    send_records(
        topic,
        Record(topic.name, 0, b"no zlib", sys_flag=0x1),
        Record(topic.name, 0, bomb, sys_flag=0x1),
        Record(topic.name, 0, zlib.compress(b"fine"), sys_flag=0x1),
        Record(topic.name, 0, b"unknown", sys_flag=0x701),
        *(Record(topic.name, 0, b"time", born_timestamp_ms=time) for time in times),
        Record(topic.name, 0, b"last", {"k\0": "\0", "TAGS": "||"}, sys_flag=0xC0),
    )
    names = "body,bodyError,sysFlag,bornTimestamp,tags"
    collected.run(topic.stream(startingOffsets="earliest", columns=names))
    [rows] = collected.batches.values()
    assert [(bytes(row.body), row.bodyError, row.sysFlag) for row in rows] == [
        (b"no zlib", "is no whole ZLIB stream", 0x1),
        (bomb, f"inflates to more than {INFLATED_BYTES_MAX} bytes", 0x1),
        (b"fine", None, 0x1),
        (b"unknown", "compression type 7 is unknown", 0x701),
        *[(b"time", None, 0)] * 3,
        (b"last", None, 0xC0),
    ]
    assert [row.bornTimestamp for row in rows[4:7]] == [None] * 3
    assert topic.read().where("bodyError is null").count() == 5
    assert topic.read(columns="queueOffset").count() == 8

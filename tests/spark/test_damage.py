"""A record that rots on the broker's disk: the source tells, or reads around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic

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
        # The topic's name behind the body: RocketMQ's own check does not cover it.
        place = data.index(b"body %d." % ROTTEN) + len(b"body 17.") + 1
        data[place] ^= 1
        path.write_bytes(data)
        broker.start()
        with pytest.raises(PySparkException, match="1 messages are gone"):
            topic.bodies()
        left = topic.bodies(failOnDataLoss=False)
        assert sorted(left) == sorted(f"body {n}." for n in range(COUNT) if n != ROTTEN)
        assert "differs from its checksum" in broker.log_text()
        assert len(list((tmp_path / "store" / "rocketpy" / "quarantine").iterdir())) == 1

"""Row S5: a power cut takes the ends of queues from a broker with ASYNC_FLUSH. No session.

The reader's methods are called as Spark calls them, with a real broker. Its directory is put back
to what was on disk before the last messages came.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_rocketpy.errors import DataLossError
from rocketpy_broker import LocalBroker
from tests.spark.test_s09_topic_made_again import lenient, read_to, rows
from tests.spark.test_stream_reader import planned, reader, send

TOPIC = "cut"
FLUSHED, LOST = [b"flushed"] * 5, [b"lost"] * 10


class CutBroker:
    """A broker with ASYNC_FLUSH whose last messages can be taken from it."""

    def __init__(self, folder: Path) -> None:
        self._on_disk = folder / "on-disk"
        self.broker = LocalBroker(folder / "store", flush="ASYNC_FLUSH")
        self.broker.start()
        self.broker.create_topic(TOPIC, queues=2)
        send(self.broker, TOPIC, *FLUSHED)
        self.broker.stop()
        shutil.copytree(self.broker.data, self._on_disk)
        self.broker.start()
        send(self.broker, TOPIC, *LOST)

    def cut_power(self) -> None:
        """Start again with what was on disk."""
        self.broker.kill()
        shutil.rmtree(self.broker.data)
        shutil.copytree(self._on_disk, self.broker.data)
        self.broker.start()


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[CutBroker]:
    made = CutBroker(tmp_path)
    yield made
    made.broker.stop()


@pytest.mark.parametrize("stopped", [True, False])
def test_s5_the_end_of_a_queue_that_a_power_cut_took_is_a_loss_by_name(
    cut: CutBroker, stopped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    end = read_to(strict, strict.initialOffset())
    assert planned(strict, strict.initialOffset(), end) == [(TOPIC, 0, 0, 15)]
    assert read_to(allowed, end) == end
    cut.cut_power()
    if stopped:
        strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    told = f"of queue 0 of topic '{TOPIC}' are gone: the queue ends at 5"
    with pytest.raises(DataLossError, match=told):
        read_to(strict, end)
    with caplog.at_level(logging.WARNING):
        after = read_to(allowed, end)
    assert told in caplog.text
    # Nothing tells where the queue was cut: what is there now is read, once more or for the first
    # time.
    assert planned(allowed, end, after) == [(TOPIC, 0, 0, 5)]
    send(cut.broker, TOPIC, b"new")
    again = read_to(allowed, after)
    assert list(rows(allowed, allowed.partitions(after, again))) == [b"new"]


def test_s5_a_batch_that_was_planned_before_a_power_cut_reads_nothing_beyond_it_in_silence(
    cut: CutBroker,
) -> None:
    strict = reader(cut.broker, TOPIC, retryTimesMax=1)
    start = strict.initialOffset()
    end = read_to(strict, start)
    partitions = strict.partitions(start, end)
    cut.cut_power()
    with pytest.raises(DataLossError):
        list(rows(strict, partitions))

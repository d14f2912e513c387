"""A power cut that truncates queues of a broker with ASYNC_FLUSH. No session.

The tests call the reader's methods as Spark does, with a real broker. They restore its directory to
the state on disk before the last messages. That state is either a power cut's, with the traces of a
running broker, or that of a copy made while the broker was stopped, without traces.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketpy.errors import DataLossError
from rocketpy_broker import LocalBroker
from tests.spark.source.test_s09_topic_made_again import lenient, read_to, rows
from tests.spark.source.test_stream_reader import planned, reader, send
from tests.support.copies import copy_running_store, copy_store

TOPIC = "cut"
FLUSHED, LOST = [b"flushed"] * 5, [b"lost"] * 10


class CutBroker:
    """A broker with ASYNC_FLUSH that can lose its last messages; it starts from a copied store."""

    def __init__(self, folder: Path, flushed: Path, *, tells: bool = True) -> None:
        self._on_disk = folder / "on-disk"
        self.broker = LocalBroker(folder / "store", flush="ASYNC_FLUSH")
        copy_store(flushed, self.broker.data)
        if not tells:
            copy_store(flushed, self._on_disk)
        self.broker.start()
        if tells:
            copy_running_store(self.broker.data, self._on_disk)
        send(self.broker, TOPIC, *LOST)

    def save_progress(self) -> None:
        """Saves the groups' offsets to disk; they are saved apart from the log."""
        self.broker.stop()
        name = "config/consumerOffset.json"
        shutil.copy(self.broker.data / name, self._on_disk / name)
        self.broker.start()

    def cut_power(self, *after: bytes) -> None:
        """Restarts the broker with the state on disk, then sends the messages `after`."""
        self.broker.kill()
        recoveries = self.broker.data / "rocketpy" / "recoveries"
        # On disk since the start that wrote it.
        shutil.copy(recoveries, self._on_disk / "rocketpy" / "recoveries")
        shutil.rmtree(self.broker.data)
        copy_store(self._on_disk, self.broker.data)
        self.broker.start()
        if after:
            send(self.broker, TOPIC, *after)


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the store of a stopped broker, with the messages that are on disk."""
    with LocalBroker(tmp_path_factory.mktemp("flushed"), flush="ASYNC_FLUSH") as broker:
        broker.create_topic(TOPIC, queues=2)
        send(broker, TOPIC, *FLUSHED)
    return broker.data


@pytest.fixture
def cut(tmp_path: Path, flushed: Path) -> Iterator[CutBroker]:
    made = CutBroker(tmp_path, flushed)
    yield made
    made.broker.stop()


@pytest.fixture
def copied(tmp_path: Path, flushed: Path) -> Iterator[CutBroker]:
    made = CutBroker(tmp_path, flushed, tells=False)
    yield made
    made.broker.stop()


@pytest.mark.parametrize("stopped", [True, False])
def test_s5_the_end_of_a_queue_that_a_power_cut_took_is_a_loss_by_name(
    copied: CutBroker, stopped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cut = copied
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
    # Nothing records where the queue was cut: the messages there now are read, again or for the
    # first time.
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


# --- Offsets that were reused ---

NEW = [b"new%d" % number for number in range(20)]
TOLD = (
    rf"offsets \[5, 15\) of queue 0 of topic '{TOPIC}' were taken back: "
    "in a power cut the broker lost messages .*"
)


def without_recovery(offset: dict[str, Any]) -> dict[str, Any]:
    """Returns the offset as of a broker that names no recovery."""
    return {name: value for name, value in offset.items() if name != "recovery"}


@pytest.mark.parametrize("after", [[], NEW[:3], NEW[:10], NEW], ids=len)
@pytest.mark.parametrize("stopped", [True, False])
def test_s5_a_queue_that_has_grown_again_behind_a_power_cut_is_a_loss_by_name(
    cut: CutBroker, stopped: bool, after: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    end = read_to(strict, strict.initialOffset())
    assert read_to(allowed, end) == end
    cut.cut_power(*after)
    if stopped:
        strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    for _ in range(2):
        with pytest.raises(DataLossError, match=TOLD + "failOnDataLoss"):
            read_to(strict, end)
    with caplog.at_level(logging.WARNING):
        following = read_to(allowed, end)
    assert re.search(TOLD + "10 messages are gone, and the query continues at 5", caplog.text)
    for _ in range(2):
        assert list(rows(allowed, allowed.partitions(end, following))) == after
    send(cut.broker, TOPIC, b"one more")
    last = read_to(strict, following)
    assert list(rows(strict, strict.partitions(following, last))) == [b"one more"]


@pytest.mark.parametrize("fails", [True, False])
def test_s5_a_task_that_reads_over_a_power_cut_gets_nothing_that_came_in_place(
    cut: CutBroker, fails: bool
) -> None:
    """Reads two queues one after the other: the first one's rows are there before the cut."""
    send(cut.broker, TOPIC, *LOST, queue_id=1)
    source = reader(cut.broker, TOPIC, failOnDataLoss=fails)
    start = source.initialOffset()
    reading = rows(source, source.partitions(start, read_to(source, start)))
    found = [next(reading)]
    cut.cut_power()
    for queue_id in (0, 1):
        send(cut.broker, TOPIC, *NEW, queue_id=queue_id)
    with pytest.raises(DataLossError, match="a power cut or a") if fails else nullcontext():
        found.extend(reading)
    assert found == FLUSHED + LOST


def test_s5_limits_hold_for_what_has_come_in_place(cut: CutBroker) -> None:
    allowed = lenient(cut.broker, TOPIC, maxOffsetsPerTrigger=8)
    start = allowed.initialOffset()
    end = read_to(allowed, read_to(allowed, start))
    cut.cut_power(*NEW)
    found: list[bytes] = []
    for _ in range(3):
        start, end = end, read_to(allowed, end)
        found += rows(allowed, allowed.partitions(start, end))
    assert found == NEW


@pytest.mark.parametrize("stopped", [True, False])
def test_s5_a_batch_that_was_planned_before_a_power_cut_is_not_mixed_with_what_came_in_place(
    cut: CutBroker, stopped: bool
) -> None:
    strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    start = strict.initialOffset()
    end = read_to(strict, start)
    cut.cut_power(*NEW)
    if stopped:
        strict, allowed = reader(cut.broker, TOPIC), lenient(cut.broker, TOPIC)
    with pytest.raises(DataLossError, match=TOLD):
        strict.partitions(start, end)
    for _ in range(2):
        assert list(rows(allowed, allowed.partitions(start, end))) == FLUSHED
    following = read_to(allowed, end)
    assert list(rows(allowed, allowed.partitions(end, following))) == NEW


def test_s5_kills_and_restarts_take_nothing_back_and_are_no_loss(cut: CutBroker) -> None:
    strict = reader(cut.broker, TOPIC)
    end = read_to(strict, strict.initialOffset())
    for again in (cut.broker.kill, cut.broker.stop, cut.broker.kill):
        again()
        cut.broker.start()
        assert read_to(strict, end) == read_to(reader(cut.broker, TOPIC), end) == end
        send(cut.broker, TOPIC, b"new")
        for source in (strict, reader(cut.broker, TOPIC)):
            following = read_to(source, end)
            assert list(rows(source, source.partitions(end, following))) == [b"new"]
        end = following


def test_s5_an_offset_of_an_older_connector_goes_on_as_before(cut: CutBroker) -> None:
    strict = reader(cut.broker, TOPIC)
    end = without_recovery(read_to(strict, strict.initialOffset()))
    cut.cut_power(*NEW)
    following = read_to(strict, end)
    assert planned(strict, end, following) == [(TOPIC, 0, 15, 25)]
    # Its next offset on detects a cut, and so does a query that waits at this one.
    cut.cut_power(*NEW, *NEW)
    with pytest.raises(DataLossError, match="were taken back"):
        read_to(strict, following)


def test_s5_a_query_that_waits_at_an_offset_without_a_recovery_learns_one(cut: CutBroker) -> None:
    strict = reader(cut.broker, TOPIC)
    end = without_recovery(read_to(strict, strict.initialOffset()))
    assert read_to(strict, end) == end
    cut.cut_power(*NEW)
    with pytest.raises(DataLossError, match=TOLD):
        read_to(strict, end)


@pytest.mark.parametrize("cutting", ["cut", "copied"])
def test_s5_a_group_goes_on_where_a_queue_was_cut_and_skips_nothing_that_came_in_place(
    cutting: str, request: pytest.FixtureRequest
) -> None:
    cut: CutBroker = request.getfixturevalue(cutting)
    source = reader(cut.broker, TOPIC)
    source.commit(read_to(source, source.initialOffset()))
    cut.save_progress()
    cut.cut_power(*NEW)
    following = reader(cut.broker, TOPIC, startingOffsets="committed")
    start = following.initialOffset()
    end = read_to(following, start)
    assert list(rows(following, following.partitions(start, end))) == NEW


@pytest.mark.parametrize("fails", [True, False])
def test_s5_a_query_that_meets_a_cut_leaves_its_group_where_the_queue_was_cut(
    cut: CutBroker, fails: bool
) -> None:
    source = reader(cut.broker, TOPIC)
    end = read_to(source, source.initialOffset())
    source.commit(end)
    cut.save_progress()
    cut.cut_power(*NEW)
    restarted = reader(cut.broker, TOPIC, failOnDataLoss=fails)
    with pytest.raises(DataLossError, match=TOLD) if fails else nullcontext():
        read_to(restarted, end)
    following = reader(cut.broker, TOPIC, startingOffsets="committed")
    start = following.initialOffset()
    assert planned(following, start, read_to(following, start)) == [(TOPIC, 0, 5, 25)]

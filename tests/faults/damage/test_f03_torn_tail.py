"""A log whose tail is torn at every byte of its last three records.

The tail had not been flushed, as after a power cut: the mark is before it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from tests.faults.images import (
    QUARANTINE,
    Image,
    altered,
    image_of,
    put_image,
    read_bodies,
    send,
    send_prepared,
    workshop,
)
from tests.support.store.messages import OTHER, QUEUE, flush_log
from tests.support.store.stores import SEGMENT_BYTES, SMALL_INDEX, opened, store_in

LOG = "commitlog/" + "0".zfill(20)
CHECKSUMS = "rocketpy/checksums/" + "0".zfill(20)
CHECKSUM_BYTES = 16
FLUSHED_COUNT = 3
# Each of the six kinds tears one byte in STRIDE_QUICK, at a phase of its own, and every border.
# Together they tear every byte.
STRIDE_QUICK = 4
FAR_MS = 1 << 50


@dataclass(frozen=True)
class Destination:
    """A record of the log; `queue` is None for one that is in no queue."""

    begin: int
    end: int
    queue: QueueKey | None
    body: bytes


@dataclass(frozen=True)
class Crashed:
    """A store with four unflushed records at its end."""

    image: Image
    log: bytes
    records: list[Destination]

    @property
    def end(self) -> int:
        return self.records[-1].end


def crashed_store(folder: Path) -> Crashed:
    """Returns a store of three flushed records; a block of two, a plain, a prepared one are not."""
    bodies = [(b"a" * 21, QUEUE), (b"b" * 22, QUEUE), (b"c" * 23, OTHER)]
    with opened(folder) as store:
        begins = [send(store, [body], queue) for body, queue in bodies]
        flush_log(store)
        first = send(store, [b"d" * 24, b"e" * 25])
        size = len(store._log.files.segments[0].view[: store._log.end]) - first
        # Body and key of the second are longer by one byte each.
        begins += [first, first + size // 2 - 1]
        begins += [send(store, [b"f" * 26], OTHER), send_prepared(store, b"g" * 27)]
        ends = [*begins[1:], store._log.end]
        log = bytes(store._log.files.segments[0].view)
    bodies += [(b"d" * 24, QUEUE), (b"e" * 25, QUEUE), (b"f" * 26, OTHER)]
    records = [
        Destination(begin, end, queue, body)
        for begin, end, (body, queue) in zip(begins, ends, bodies, strict=False)
    ]
    records.append(Destination(begins[-1], ends[-1], None, b"g" * 27))
    return Crashed(image_of(folder), log, records)


Fill = Callable[[Crashed, int], bytes]


def zeros(_crashed: Crashed, length: int) -> bytes:
    return bytes(length)


def chance(_crashed: Crashed, length: int) -> bytes:
    return random.Random(length).randbytes(length)


def older_record(crashed: Crashed, length: int) -> bytes:
    second = crashed.records[1]
    return (crashed.log[second.begin : second.end] * 8)[:length]


FILLS = {"zeros": zeros, "chance": chance, "older record": older_record}


# A record reaches the disk with its checksum: above the mark one without it is torn.
CHECKSUMS_AFTER = ("kept", "lost")
KINDS = list(itertools.product(FILLS, CHECKSUMS_AFTER))


def tears(crashed: Crashed, phase: int, stride: int) -> Iterator[int]:
    """Yields places of tears in the last three records."""
    last = crashed.records[-3:]
    borders = {part.begin + shift for part in last for shift in (0, 1)}
    borders |= {part.end - 1 for part in last}
    for tear in range(last[0].begin, crashed.end):
        if tear % stride == phase % stride or tear in borders:
            yield tear


@pytest.mark.parametrize("stride", [STRIDE_QUICK, pytest.param(1, marks=pytest.mark.torture)])
@pytest.mark.parametrize("checksums", CHECKSUMS_AFTER)
@pytest.mark.parametrize("fill", FILLS)
def test_f03_a_tail_torn_at_any_byte_is_cut_and_every_whole_record_before_it_served(
    fill: str, checksums: str, stride: int
) -> None:
    with workshop() as folder:
        crashed = crashed_store(folder)
        image = crashed.image
        known = len(crashed.records) if checksums == "kept" else FLUSHED_COUNT
        image = altered(image, CHECKSUMS, lambda data: _zero_from(data, known * CHECKSUM_BYTES))
        for tear in tears(crashed, KINDS.index((fill, checksums)), stride):
            torn = bytearray(crashed.log)
            torn[tear : crashed.end] = FILLS[fill](crashed, crashed.end - tear)
            put_image({**image, LOG: (bytes(torn), SEGMENT_BYTES)}, folder)
            check_recovered(folder, crashed, bytes(torn), known)


def _zero_from(data: bytearray, begin: int) -> None:
    data[begin:] = bytes(len(data) - begin)


def check_recovered(folder: Path, crashed: Crashed, torn: bytes, known: int) -> None:
    """Asserts that the store in `folder` has all whole records of `torn`, and nothing else."""
    log = crashed.log
    is_whole = [
        torn[part.begin : part.end] == log[part.begin : part.end] for part in crashed.records
    ]
    count = is_whole.index(False) if False in is_whole else len(is_whole)
    count = min(count, known)
    whole, lost = crashed.records[:count], crashed.records[count:]
    end = whole[-1].end
    store = store_in(folder, **SMALL_INDEX)
    result = store.open()
    try:
        assert (result.end, result.damages) == (end, [])
        garbage = torn[end:].rstrip(b"\0")
        assert result.bytes_dropped == len(garbage)
        assert quarantined(folder) == ([garbage] if garbage else [])
        assert bytes(store._log.files.segments[0].view) == log[:end].ljust(SEGMENT_BYTES, b"\0")
        for queue in (QUEUE, OTHER):
            bodies = [record.body for record in whole if record.queue == queue]
            assert read_bodies(store, queue) == bodies
            assert send(store, [b"next"], queue) >= end
            assert store.range_of(queue) == QueueBounds(0, len(bodies) + 1)
            assert read_bodies(store, queue) == [*bodies, b"next"]
        check_index(store, whole, lost)
    finally:
        store._release()


def quarantined(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / QUARANTINE).glob("*"))]


def check_index(store: MessageStore, whole: list[Destination], lost: list[Destination]) -> None:
    """Asserts that each whole record of a queue is found by its body, which is its key."""
    for record in whole + lost:
        if record.queue is not None:
            key = record.body.decode()
            found = [*store.index.walk(record.queue.topic, key, 0, FAR_MS)]
            assert found == ([record.begin] if record in whole else [])

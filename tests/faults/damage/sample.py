"""A small store with records of every kind, and the expected reads.

It has three log segments of 1 KiB, several files of each queue and two of the index. A part of it
was there at a clean stop, the rest was added later; a topic has been deleted. All of it is flushed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import END_OF_SEGMENT_MAGIC, decode_record, has_queue_offset
from tests.faults.images import Image, image_of, read_bodies, send, send_prepared
from tests.support.store.messages import OTHER, QUEUE, delete_topic, flush_log
from tests.support.store.stores import SMALL_INDEX, opened, store_in

SEGMENT_BYTES = 1024
GONE = QueueKey("TopicGone", 0)
FAR_MS = 1 << 50
_SIZE_AND_MAGIC = struct.Struct(">iI")


@dataclass(frozen=True)
class Destination:
    """A record of the log. `kind`: plain, batch, prepared, gone, blank, or last."""

    begin: int
    end: int
    kind: str
    queue: QueueKey | None = None
    body: bytes = b""

    @property
    def file(self) -> str:
        """The path of its file."""
        return f"commitlog/{self.begin - self.begin % SEGMENT_BYTES:020d}"


@dataclass(frozen=True)
class Sample:
    """A stopped store and its records, in order."""

    image: Image
    records: list[Destination]

    def of_kind(self, kind: str) -> Destination:
        """Returns the last record of that kind."""
        return [record for record in self.records if record.kind == kind][-1]

    def at(self, offset: int) -> Destination:
        """Returns the record that has the byte at this offset."""
        return next(part for part in self.records if part.begin <= offset < part.end)


def sample_of(folder: Path, *, clean: bool, whole: bool = True) -> Sample:
    """Returns the sample, stopped cleanly or killed; or its first part, as of the clean stop."""
    clock = ManualClock()
    with opened(folder, clock=clock, segment_bytes=SEGMENT_BYTES) as store:
        send(store, [b"gone"], GONE)
        for number in range(12):
            clock.advance(1000)
            send(store, [b"plain-%d" % number], QUEUE if number % 3 else OTHER)
        delete_topic(store, GONE.topic)
        store.close()
    if whole:
        _second_part(folder, clock, clean=clean)
    image = image_of(folder)
    return Sample(image, list(_records(image)))


def _second_part(folder: Path, clock: ManualClock, *, clean: bool) -> None:
    store = store_in(folder, clock, segment_bytes=SEGMENT_BYTES, **SMALL_INDEX)
    store.open()
    for number in range(12, 17):
        clock.advance(1000)
        send(store, [b"plain-%d" % number], QUEUE if number % 3 else OTHER)
        send(store, [b"batch-%d-%d" % (number, part) for part in range(3)][: number - 12])
        if number == 14:
            send_prepared(store, b"prepared")
    send(store, [b"last"], OTHER)
    flush_log(store)
    store.dispatch()
    store.flush_derived()
    if clean:
        store.close()
    else:
        store._release()


def _records(image: Image) -> Iterator[Destination]:
    for name in sorted(name for name in image if name.startswith("commitlog/")):
        data, length = image[name]
        data, base, position = data.ljust(length, b"\0"), int(Path(name).name), 0
        while position < length and data[position : position + 4] != bytes(4):
            size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
            begin = base + position
            if magic == END_OF_SEGMENT_MAGIC:
                yield Destination(begin, begin + size, "blank")
            else:
                record = decode_record(data, position).record
                queue = QueueKey(record.topic, record.queue_id)
                kind = record.body.partition(b"-")[0].decode()
                listed = has_queue_offset(record.sys_flag) and queue != GONE
                yield Destination(begin, begin + size, kind, queue if listed else None, record.body)
            position += size


def check_readable(store: MessageStore, sample: Sample, damaged: Destination | None = None) -> None:
    """Asserts that `store` returns every record but the damaged one, by queue and by key."""
    for queue in (QUEUE, OTHER):
        whole = [part for part in sample.records if part.queue == queue and part != damaged]
        assert read_bodies(store, queue) == [part.body for part in whole]
    assert store.range_of(GONE).max_offset == 0


def check_keys(store: MessageStore, sample: Sample, damaged: Destination | None = None) -> None:
    """Asserts that every record is found by its key."""
    for part in sample.records:
        if part.queue is not None:
            key = part.body.decode()
            found = store.messages.by_key(part.queue.topic, key, 0, FAR_MS, 64)
            assert [bytes(view[:0]) for view in found] == ([] if part == damaged else [b""]), part
            for view in found:
                assert decode_record(view).record.body == part.body

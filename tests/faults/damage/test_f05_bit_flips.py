"""Single flipped bits in a store with its log on disk.

A flip in a record costs that record: it is reported with file and position, and its bytes are kept
in quarantine. Every other record is served. A flip anywhere else changes no delivery.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import Damage
from tests.faults.damage.sample import (
    SEGMENT_BYTES,
    Destination,
    Sample,
    check_keys,
    check_readable,
    sample_of,
)
from tests.faults.images import QUARANTINE, altered, put_image, read_bodies, send, workshop
from tests.support.store.messages import OTHER, QUEUE, flush_log
from tests.support.store.stores import opened

KINDS = ("plain", "batch", "prepared", "blank", "last")
RANDOM_FLIPS_QUICK, RANDOM_FLIPS_TORTURE = 600, 20_000
# One bit in HEADER_STRIDE_QUICK of the index's header and slots; both files are met.
HEADER_STRIDE_QUICK = 3
# One bit in this many gets a whole recovery; the number has no factor in common with 8.
RECOVERY_STRIDE = 11
MARKS = "config/deletedTopics.json"
INDEX_ENTRIES_BEGIN = IndexFormat(8, 16).entries_begin
TORTURE_ROUNDS = 1000
TORTURE_FLIPS_PER_ROUND = 100
TORTURE_SEGMENT_BYTES = 8 << 20
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@cache
def sample(*, clean: bool) -> Sample:
    with workshop() as folder:
        return sample_of(folder, clean=clean)


def flip(data: bytearray, bit: int) -> None:
    data[bit // 8] ^= 1 << bit % 8


def check_told(
    folder: Path, caplog: pytest.LogCaptureFixture, damaged: Destination, segment: bytes
) -> None:
    """Asserts that file and position are logged, and the bytes are in quarantine."""
    sentence = f"{folder / damaged.file}: {damaged.end - damaged.begin} bytes from log offset "
    assert f"{sentence}{damaged.begin} on are damaged" in caplog.text
    (copy,) = (folder / QUARANTINE).glob(f"{damaged.begin:020d}.damaged-*")
    position = damaged.begin % SEGMENT_BYTES
    segment = segment.ljust(SEGMENT_BYTES, b"\0")
    assert copy.read_bytes() == segment[position : position + damaged.end - damaged.begin]


@contextmanager
def flipped_in_place(path: Path, bit: int) -> Iterator[None]:
    """Flips a bit of a file for a while; a store may have the file mapped."""
    with path.open("rb+", buffering=0) as file:
        (byte,) = os.pread(file.fileno(), 1, bit // 8)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), bit // 8)
        yield
        os.pwrite(file.fileno(), bytes([byte]), bit // 8)


@pytest.mark.parametrize("kind", KINDS)
def test_f05_after_a_clean_restart_reading_detects_every_flipped_bit_of_a_record(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = sample(clean=True)
    target = stopped.of_kind(kind)
    damaged = target if target.queue is not None else None
    first = target.begin % SEGMENT_BYTES * 8
    bits = range(first, first + (target.end - target.begin) * 8)
    with workshop() as folder:
        put_image(stopped.image, folder)
        # A store reports a damaged record once.
        for group in [bits] if damaged is None else [[bit] for bit in bits]:
            with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
                for bit in group:
                    with flipped_in_place(folder / target.file, bit):
                        check_readable(store, stopped, damaged)
                        if damaged is not None:
                            segment = (folder / target.file).read_bytes()
                            check_told(folder, caplog, target, segment)
                store.close()
            caplog.clear()
            for copy in (folder / QUARANTINE).glob("*"):
                copy.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_f05_a_scan_of_the_log_detects_every_flipped_bit_of_a_flushed_record(kind: str) -> None:
    stopped = sample(clean=False)
    target = stopped.of_kind(kind)
    end = stopped.records[-1].end
    with workshop() as folder:
        put_image(stopped.image, folder)
        with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
            for bit in meaningful_bits(target):
                with flipped_in_place(folder / target.file, bit):
                    scanner = LogScanner(store._log, Trust(end, Checksummed.ALL))
                    items = list(scanner.scan(0))
                found = [item for item in items if isinstance(item, Damage)]
                path = folder / target.file
                assert [(part.path, part.offset) for part in found] == [(path, target.begin)]
                assert found[0].length == target.end - target.begin
                whole = sum(len(item.block) for item in items if isinstance(item, LogSpan))
                assert whole == len([part for part in stopped.records if part.kind != "blank"]) - (
                    kind != "blank"
                )
                assert scanner.end == end


def meaningful_bits(record: Destination) -> range:
    """Returns the bits that are read: of a blank record only the first eight bytes."""
    first = record.begin % SEGMENT_BYTES * 8
    size_bytes = 8 if record.kind == "blank" else record.end - record.begin
    return range(first, first + size_bytes * 8)


@pytest.mark.parametrize("kind", KINDS)
def test_f05_after_a_crash_a_flushed_record_with_a_flipped_bit_is_kept_apart(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = sample(clean=False)
    target = stopped.of_kind(kind)
    with workshop() as folder:
        for bit in meaningful_bits(target)[::RECOVERY_STRIDE]:
            caplog.clear()
            image = altered(stopped.image, target.file, partial(flip, bit=bit))
            put_image(image, folder)
            with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
                check_told(folder, caplog, target, bytes(image[target.file][0]))
                check_readable(store, stopped, target)
                check_appends(store, stopped)


def check_appends(store: MessageStore, stopped: Sample) -> None:
    """Asserts that a new record gets the queue's next offset, after all other records."""
    for queue in (QUEUE, OTHER):
        count = len([part for part in stopped.records if part.queue == queue])
        assert store.next_offset(queue) == count
        assert send(store, [b"next"], queue) >= stopped.records[-1].end


def test_f05_a_damaged_record_keeps_its_offset_though_its_queue_is_lost() -> None:
    stopped = sample(clean=False)
    target = stopped.of_kind("last")
    last_bit = (target.end % SEGMENT_BYTES) * 8 - 1
    image = altered(stopped.image, target.file, partial(flip, bit=last_bit))
    image = {name: content for name, content in image.items() if "consumequeue/" not in name}
    with workshop() as folder:
        put_image(image, folder)
        with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
            check_appends(store, stopped)


@pytest.mark.parametrize(
    "flips", [RANDOM_FLIPS_QUICK // 2, pytest.param(RANDOM_FLIPS_TORTURE // 2, marks=torture)]
)
@pytest.mark.parametrize("clean", [True, False])
def test_f05_a_bit_flipped_anywhere_costs_one_record_at_most(
    clean: bool, flips: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    stopped = sample(clean=clean)
    chance = random.Random(5)
    names = sorted(name for name, (data, _) in stopped.image.items() if data and name != MARKS)
    with workshop() as folder:
        for number in range(flips):
            name = names[number % len(names)]
            bit = chance.randrange(len(stopped.image[name][0]) * 8)
            check_one_flip(stopped, folder, name, bit, caplog)


def check_one_flip(
    stopped: Sample, folder: Path, name: str, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    image = altered(stopped.image, name, lambda data: flip(data, bit))
    put_image(image, folder)
    damaged = None
    if name.startswith("commitlog/"):
        damaged = stopped.at(int(Path(name).name) + bit // 8)
    with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        check_readable(store, stopped, damaged)
        if not (name.startswith("index/") and bit < INDEX_ENTRIES_BEGIN * 8):
            check_keys(store, stopped, damaged)
        if damaged is not None and damaged.queue is not None:
            check_told(folder, caplog, damaged, bytes(image[name][0]))
        check_appends(store, stopped)


@pytest.mark.parametrize("stride", [HEADER_STRIDE_QUICK, pytest.param(1, marks=torture)])
def test_f05_a_flip_in_the_header_or_the_slots_of_the_index_hides_no_message(stride: int) -> None:
    stopped = sample(clean=True)
    names = [name for name in stopped.image if name.startswith("index/")]
    with workshop() as folder:
        for bit in range(0, INDEX_ENTRIES_BEGIN * 8, stride):
            name = names[bit % len(names)]
            put_image(altered(stopped.image, name, partial(flip, bit=bit)), folder)
            with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
                check_keys(store, stopped)


def test_f05_a_flip_in_the_marks_of_deleted_topics_is_told_or_without_effect() -> None:
    stopped = sample(clean=False)
    with workshop() as folder:
        for bit in range(len(stopped.image[MARKS][0]) * 8):
            put_image(altered(stopped.image, MARKS, partial(flip, bit=bit)), folder)
            with (
                suppress(StoreDirectoryError),
                opened(folder, segment_bytes=SEGMENT_BYTES) as store,
            ):
                check_readable(store, stopped)


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_f05_a_hundred_thousand_flips_in_64_mib_cost_their_records_only() -> None:
    chance = random.Random(64)
    with workshop() as folder:
        with opened(folder, segment_bytes=TORTURE_SEGMENT_BYTES) as store:
            bodies: list[bytes] = []
            while store._log.end < 64 << 20:
                block = [b"%d-" % (len(bodies) + part) + b"x" * 4000 for part in range(64)]
                send(store, block)
                bodies += block
            flush_log(store)
            store.close()
        with workshop() as whole:
            shutil.copytree(folder, whole, dirs_exist_ok=True)
            for round_number in range(TORTURE_ROUNDS):
                shutil.rmtree(folder)
                shutil.copytree(whole, folder)
                torture_round(folder, bodies, chance, crashed=round_number % 10 == 0)


def torture_round(
    folder: Path, bodies: list[bytes], chance: random.Random, *, crashed: bool
) -> None:
    """Flips many bits; reads them after a clean restart, or after a scan of the whole log.

    A scan fills damage, so each round starts with the log as it was.
    """
    if crashed:
        (folder / "rocketpy/manifest.json").unlink()
    with ExitStack() as flips:
        offsets = chance.sample(range(64 << 20), TORTURE_FLIPS_PER_ROUND)
        for offset in offsets:
            base = offset - offset % TORTURE_SEGMENT_BYTES
            bit = (offset - base) * 8 + chance.randrange(8)
            flips.enter_context(flipped_in_place(folder / f"commitlog/{base:020d}", bit))
        with opened(folder, segment_bytes=TORTURE_SEGMENT_BYTES) as store:
            queue = store._queues.get(QUEUE)
            assert queue is not None
            lost = set()
            for number in range(len(bodies)):
                (unit,) = queue.units(number, number + 1)
                begin, size = int(unit["physical_offset"]), int(unit["size"])
                if any(begin <= offset < begin + size for offset in offsets):
                    lost.add(number)
            whole = [body for number, body in enumerate(bodies) if number not in lost]
            assert read_bodies(store) == whole
            store.close()
    for copy in (folder / QUARANTINE).glob("*"):
        copy.unlink()

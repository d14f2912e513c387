"""H01: a slave's log is its master's, byte for byte, and every record is checked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketpy_broker.store.append.log_copy import (
    LogCopyError,
    LogDivergedError,
    QueueRestartedError,
)
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import Damage, QueueBounds, QueueKey
from tests.support.blocks import wire_block
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    read_all,
    remove_oldest_segment,
)
from tests.support.store.stores import store_in

SEGMENT = 16 << 10


@contextmanager
def opened(
    folder: Path, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
) -> Iterator[MessageStore]:
    folder.mkdir(exist_ok=True)
    store = store_in(folder, None, flush, segment_bytes=SEGMENT, queue_file_bytes=20_000)
    store.open()
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "master") as store:
        yield store


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "slave") as store:
        yield store


def end_of(store: MessageStore) -> int:
    return store.positions().log_end


def log_of(store: MessageStore) -> bytes:
    offset, parts = store.positions().log_begin, []
    while offset < end_of(store):
        parts.append(bytes(store.log_piece(offset, SEGMENT)))
        offset += len(parts[-1])
    return b"".join(parts)


def store_all(slave: MessageStore) -> None:
    while True:
        try:
            if not slave.copy.store_some():
                return
        except QueueRestartedError as restarted:
            slave.copy.restart(restarted.queue, restarted.below)


def copy(
    master: MessageStore,
    slave: MessageStore,
    size: Callable[[], int] = lambda: SEGMENT,
    change: Callable[[int, bytes], bytes] = lambda _offset, data: data,
) -> None:
    """Gives the slave what it lacks, in pieces of any size."""
    if end_of(slave) == 0:
        slave.copy.begin(master.positions().log_begin)
    offset = max(slave.copy.received_end, 1)
    while offset < end_of(master):
        data = change(offset, bytes(master.log_piece(offset, size())))
        slave.copy.receive(offset, memoryview(data))
        offset += len(data)
        store_all(slave)


def same(master: MessageStore, slave: MessageStore) -> None:
    assert log_of(slave) == log_of(master)
    for queue in {*master.queues(), *slave.queues()}:
        assert slave.range_of(queue) == master.range_of(queue)
        assert read_all(slave, queue) == read_all(master, queue)


@pytest.mark.parametrize("size", [700, SEGMENT])
def test_h01_a_copy_has_the_same_checksums(tmp_path: Path, master: MessageStore, size: int) -> None:
    with opened(tmp_path / "slave") as slave:
        for number in range(40):
            put(master, [bytes(300)] * (1 + number % 3), QueueKey("AB"[number % 2], 0))
        copy(master, slave, lambda: size)
        both = [
            [each.entries_from(0).tobytes() for each in store._log.checksums.below(end_of(store))]
            for store in (master, slave)
        ]
    assert both[0] == both[1] != []


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", range(5))
def test_h01_a_copy_in_pieces_of_any_size_is_the_same(
    tmp_path: Path, master: MessageStore, flush: FlushDiskType, seed: int
) -> None:
    chance = random.Random(seed)
    with opened(tmp_path / "slave", flush) as slave:
        for _ in range(30):
            queue = QueueKey(chance.choice(["A", "B"]), chance.randrange(3))
            put(
                master, [bytes(chance.randrange(900)) for _ in range(chance.randrange(1, 9))], queue
            )
            copy(master, slave, lambda: chance.randrange(1, 3_000))
        assert end_of(master) > 3 * SEGMENT
        flush_log(slave)
        same(master, slave)


def test_h01_nothing_is_shown_before_it_is_whole(master: MessageStore, slave: MessageStore) -> None:
    put(master, numbered(2))
    data = log_of(master)
    slave.copy.begin(0)
    for offset in range(1, len(data)):
        slave.copy.receive(offset, memoryview(data[offset : offset + 1]))
        store_all(slave)
        count = (offset + 1) * 2 // len(data)
        assert slave.range_of(QUEUE).max_offset == count
    same(master, slave)


@pytest.mark.parametrize("flush", FlushDiskType)
def test_h01_a_log_that_ends_with_its_segment_is_dispatched_to_its_end(
    tmp_path: Path, master: MessageStore, flush: FlushDiskType
) -> None:
    while end_of(master) < SEGMENT:
        put(master, [bytes(900)])
    with opened(tmp_path / "slave", flush) as slave:
        slave.copy.begin(0)
        slave.copy.receive(1, memoryview(log_of(master)[1:SEGMENT]))
        store_all(slave)
        flush_log(slave)
        assert end_of(slave) == slave.positions().dispatched_end == SEGMENT


def test_h01_a_slave_begins_where_its_master_begins(
    master: MessageStore, slave: MessageStore
) -> None:
    while end_of(master) < 3 * SEGMENT:
        put_all(master, numbered(50))
    flush_log(master)
    remove_oldest_segment(master)
    copy(master, slave)
    same(master, slave)
    assert slave.positions().log_begin == SEGMENT


def test_h01_a_restart_goes_on(tmp_path: Path, master: MessageStore) -> None:
    for number in range(4):
        put_all(master, numbered(60, 60 * number))
        with opened(tmp_path / "slave") as slave:
            copy(master, slave, lambda: 700)
            # A part of a record that a clean stop leaves out.
            put(master, [b"x" * 500])
            piece = master.log_piece(end_of(slave), 100)
            slave.copy.receive(end_of(slave), piece)
            assert not slave.copy.store_some()
    with opened(tmp_path / "slave") as slave:
        copy(master, slave)
        same(master, slave)


def test_h01_keys_are_found_on_the_slave(master: MessageStore, slave: MessageStore) -> None:
    block = wire_block("TopicA", [b"one", b"two"], keys=["k1", "k2"])
    master.append(QUEUE, block.parsed())
    copy(master, slave)
    for key in ("k1", "k2"):
        found = [
            [each for each in store.index.walk("TopicA", key, 0, 1 << 60) if each is not None]
            for store in (master, slave)
        ]
        assert found[0] == found[1]
        assert len(found[1]) == 1


# Size, magic, physical offset and body: RocketMQ's check covers no other byte.
@pytest.mark.parametrize("place", [0, 4, 30, 90])
def test_h01_a_damaged_record_is_never_shown(
    master: MessageStore, slave: MessageStore, place: int
) -> None:
    put(master, numbered(3))
    copy(master, slave)
    at = end_of(master)
    put(master, numbered(3, 3))

    def flip(offset: int, data: bytes) -> bytes:
        changed = bytearray(data)
        if offset <= at + place < offset + len(data):
            changed[at + place - offset] ^= 0x41
        return bytes(changed)

    def copy_damaged() -> None:
        copy(master, slave, change=flip)
        # A larger size waits for more bytes.
        slave.copy.receive(slave.copy.received_end, memoryview(bytes(80 << 20)))

    before = end_of(slave)
    with pytest.raises(LogCopyError):
        copy_damaged()
    assert end_of(slave) == before
    # A new connection brings the right bytes.
    slave.copy.drop_received()
    copy(master, slave)
    same(master, slave)


def test_h01_a_diverged_log_is_detected(tmp_path: Path, master: MessageStore) -> None:
    put(master, [b"same"])
    with opened(tmp_path / "slave") as slave:
        copy(master, slave)
        slave.append(QUEUE, wire_block("TopicA", [b"of the slave"]).parsed())
        put(master, [b"of the master"])
        begin, data = 1, bytes(log_of(master)[1:])
        with pytest.raises(LogDivergedError):
            slave.copy.receive(begin, memoryview(data))
        assert read_all(slave) == [b"same", b"of the slave"]


@pytest.mark.parametrize("flush", FlushDiskType)
def test_h03_a_recreated_topic_starts_again_on_the_slave(
    tmp_path: Path, master: MessageStore, flush: FlushDiskType
) -> None:
    with opened(tmp_path / "slave", flush) as slave:
        put(master, numbered(5))
        put(master, numbered(2), OTHER)
        delete_topic(master, "TopicA")
        put(master, [b"again", b"and again"])
        copy(master, slave)
        flush_log(slave)
        same(master, slave)
    with opened(tmp_path / "slave") as slave:
        same(master, slave)


def test_h03_messages_of_a_deleted_topic_that_are_still_to_come_are_left_out(
    master: MessageStore, slave: MessageStore
) -> None:
    put(master, numbered(5))
    below = end_of(master)
    slave.copy.begin(0)
    slave.copy.save_marks({"TopicA": below}, {})
    put(master, [b"late"], QueueKey("TopicA", 1))
    copy(master, slave)
    assert read_all(slave, QUEUE) == []
    assert read_all(slave, QueueKey("TopicA", 1)) == [b"late"]


def test_h01_a_filler_in_the_masters_log_is_copied(
    tmp_path: Path, master: MessageStore, slave: MessageStore
) -> None:
    put_all(master, numbered(20))
    first = bytes(master.log_piece(0, SEGMENT))[:4]
    size = int.from_bytes(first, "big")
    assert fill(master._log, Damage(tmp_path, 5 * size, size, "planted"), 1, None)
    copy(master, slave)
    assert log_of(slave) == log_of(master)
    assert slave.range_of(QUEUE) == QueueBounds(0, 20)
    assert read_all(slave)[:5] == numbered(5)


def test_h01_segments_of_another_size_are_refused_by_name(
    tmp_path: Path, master: MessageStore
) -> None:
    while end_of(master) < 2 * SEGMENT:
        put_all(master, numbered(50))
    folder = tmp_path / "slave"
    for size in (SEGMENT // 2, 2 * SEGMENT):
        of_size = folder / str(size)
        of_size.mkdir(parents=True)
        slave = store_in(of_size, segment_bytes=size, queue_file_bytes=20_000)
        slave.open()
        with pytest.raises(LogCopyError, match="--commit-log-segment-bytes"):
            copy(master, slave)
        slave.close()

"""Many queues of one message: small costs, and one without space harms no other."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.errors import QueueGrowthError
from rocketpy_broker.store.queues.files import BLOCK_BYTES
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2_grpc
from tests.faults.disks.small_disk import mounted_disk
from tests.faults.histories.clients import append_request
from tests.support.descriptors import open_below
from tests.support.store.messages import flush_log, put, read_all
from tests.support.store.stores import crash, store_in
from tests.support.time_limits import WAIT_SECONDS_MAX

QUEUES_PER_TOPIC = 8
BYTES_PER_QUEUE_MAX = 25 << 10
DESCRIPTORS_MAX = 1024
STAT_BLOCK_BYTES = 512
# A start's reads of a queue with one message: its block, and its first and last unit.
READ_BYTES_PER_QUEUE_MAX = 2 * BLOCK_BYTES
DISK_BYTES = 32 << 20
# As RocketMQ has them.
QUEUE_FILE_BYTES = 6_000_000
FEW_DESCRIPTORS = 256
SECONDS_MAX = float(WAIT_SECONDS_MAX)
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


def wide_store(folder: Path) -> MessageStore:
    """Returns a store with long files, not open yet."""
    index = {"index_slot_count": 100, "index_entry_count_max": 400}
    return store_in(folder, segment_bytes=64 << 20, queue_file_bytes=QUEUE_FILE_BYTES, **index)


def keys_of(topic_count: int) -> Iterator[QueueKey]:
    for topic in range(topic_count):
        for queue_id in range(QUEUES_PER_TOPIC):
            yield QueueKey(f"topic{topic:05d}", queue_id)


def allocated_bytes(folder: Path) -> int:
    """Returns the disk usage of a folder, as du counts it."""
    return sum(path.lstat().st_blocks * STAT_BLOCK_BYTES for path in folder.rglob("*"))


class CountedReads:
    """A counter of the bytes that positional reads ask for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self._pread = os.pread
        patch.setattr(os, "pread", self._read)

    def _read(self, descriptor: int, length: int, position: int) -> bytes:
        self.bytes += length
        return self._pread(descriptor, length, position)


def check_reopened(
    store: MessageStore, folder: Path, keys: list[QueueKey], reads: CountedReads
) -> None:
    """Asserts that a start finds all queues with few reads and descriptors."""
    before = open_below(folder)
    reads.bytes = 0
    result = store.open()
    assert (result.in_doubt, result.records_scanned) == ([], 0)
    assert reads.bytes <= READ_BYTES_PER_QUEUE_MAX * len(keys)
    assert sorted(store.queues()) == keys
    for key in keys[:: len(keys) // 500]:
        assert read_all(store, key) == [str(key).encode()]
    assert open_below(folder) - before <= DESCRIPTORS_MAX


@pytest.mark.parametrize("topic_count", [250, pytest.param(10_000, marks=torture)])
def test_f17_queues_with_a_message_each_cost_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_count: int
) -> None:
    keys = list(keys_of(topic_count))
    before = open_below(tmp_path)
    store = wide_store(tmp_path)
    store.open()
    for key in keys:
        put(store, [str(key).encode()], key)
    assert open_below(tmp_path) - before <= DESCRIPTORS_MAX
    assert allocated_bytes(tmp_path / "consumequeue") <= BYTES_PER_QUEUE_MAX * len(keys)
    store.close()
    reads = CountedReads(monkeypatch)
    stopped = wide_store(tmp_path)
    check_reopened(stopped, tmp_path, keys, reads)
    crash(stopped)
    killed = wide_store(tmp_path)
    check_reopened(killed, tmp_path, keys, reads)
    killed.close()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Yields a small disk in memory."""
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Fills a disk."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, BLOCK_BYTES):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def test_f17_a_full_disk_stops_the_queues_that_need_room_and_no_others(full_disk: Path) -> None:
    sizes = {"segment_bytes": 4 << 20, "queue_file_bytes": QUEUE_FILE_BYTES}
    store = store_in(
        full_disk / "store", None, FlushDiskType.SYNC_FLUSH, index_enable=False, **sizes
    )
    store.open()
    old, new = QueueKey("Old", 0), QueueKey("New", 0)
    put(store, [b"first"], old)
    flush_log(store)
    ballast = fill(full_disk)
    units_left = BLOCK_BYTES // 20 - 1
    for number in range(units_left):
        with pytest.raises(QueueGrowthError, match="No space left on device"):
            put(store, [b"refused"], new)
        put(store, [b"%d" % number], old)
        flush_log(store)
        assert store.range_of(old).max_offset == number + 2
    with pytest.raises(QueueGrowthError, match="queue Old-0 cannot grow"):
        put(store, [b"refused"], old)
    ballast.unlink()
    for key in (old, new):
        put(store, [b"last"], key)
    flush_log(store)
    assert read_all(store, new) == [b"last"]
    assert read_all(store, old) == [b"first", *(b"%d" % one for one in range(units_left)), b"last"]
    store.dispatch()
    assert store.queue_allocator.refusal is None
    store.close()


def test_f17_a_broker_with_few_descriptors_serves_more_queues_than_it_may_open(
    tmp_path: Path,
) -> None:
    queues = list(keys_of(60))
    broker = LocalBroker(tmp_path / "store", flush=FlushDiskType.ASYNC_FLUSH)
    try:
        broker.start()
        limit = (FEW_DESCRIPTORS, FEW_DESCRIPTORS)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limit)
        for topic in sorted({key.topic for key in queues}):
            broker.create_topic(topic, QUEUES_PER_TOPIC)
        with grpc.insecure_channel(broker.endpoint) as channel:
            stub = broker_pb2_grpc.BrokerStub(channel)
            requests = [append_request(key, [str(key).encode()]) for key in queues]
            answers = list(stub.Append(iter(requests), timeout=SECONDS_MAX))
            assert {answer.status.code for answer in answers} == {ResponseCode.SUCCESS}
            admin = admin_pb2_grpc.AdminStub(channel)
            info = admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest(), timeout=SECONDS_MAX)
            assert info.refusal == ""
        opened = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        assert opened < FEW_DESCRIPTORS * 3 // 4
    finally:
        broker.stop()
    again = wide_store(tmp_path / "store")
    assert again.open().in_doubt == []
    for key in queues:
        assert read_all(again, key) == [str(key).encode()]
    again.close()

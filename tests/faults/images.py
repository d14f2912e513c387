"""Images of stores as values: the bytes of every file of a folder.

A test makes a store once, keeps its image, and puts altered images into folders as often as needed.
Stores are small: files of 4 KiB and an index of a few slots. They are kept in memory and their
flushes do nothing: here files are altered by hand, and no power is cut.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import BlockColumns, RecordBlock, decode_record, encode_block
from tests.support.blocks import BORN_HOST, BORN_MS
from tests.support.store.messages import NO_END, QUEUE
from tests.support.store.stores import STORE_HOST

PREPARED = 0x4
MARK = "rocketpy/flushed"
QUARANTINE = "rocketpy/quarantine/"

# Path below the store's folder to content, without the zeros at its end, and its length.
Image = dict[str, tuple[bytes, int]]


@contextmanager
def workshop() -> Iterator[Path]:
    """Yields a folder for stores that are opened by the thousand."""
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-", dir=in_memory) as folder,
        mock.patch("os.fsync"),
        mock.patch("os.fdatasync"),
    ):
        yield Path(folder) / "store"


def image_of(folder: Path) -> Image:
    """Returns the contents of all files."""
    image: Image = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            image[path.relative_to(folder).as_posix()] = (data.rstrip(b"\0"), len(data))
    return image


def put_image(image: Image, folder: Path) -> None:
    """Replaces the contents of `folder` with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("commitlog", "consumequeue", "index", "config", "rocketpy"):
        (folder / name).mkdir(parents=True)
    for name, (data, length) in image.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.truncate(length)


def altered(image: Image, name: str, alter: Callable[[bytearray], None]) -> Image:
    """Returns the image with one file changed and its length kept."""
    data, length = image[name]
    content = bytearray(data.ljust(length, b"\0"))
    alter(content)
    return {**image, name: (bytes(content).rstrip(b"\0"), len(content))}


def block_of(
    topic: str, bodies: list[bytes], *, sys_flag: int = 0, in_index: bool = True
) -> RecordBlock:
    """Returns records in a writable buffer; each has its body as key, or none has key and tag."""
    encoded = encode_block(
        BlockColumns(
            body=pa.array(bodies, pa.binary()),
            topic=topic,
            queue_id=0,
            tags=pa.array(["tag"] * len(bodies), pa.string()) if in_index else None,
            keys=pa.array([body.decode() for body in bodies]) if in_index else None,
            born_timestamp_ms=BORN_MS,
            born_host=BORN_HOST,
            sys_flag=sys_flag,
        )
    )
    return RecordBlock.parse(bytearray(encoded.data), np.asarray(encoded.sizes, np.int32))


def send(store: MessageStore, bodies: list[bytes], queue: QueueKey = QUEUE) -> int:
    """Appends one block; returns its offset in the log."""
    return store.append(queue, block_of(queue.topic, bodies)).physical_offset


def send_prepared(store: MessageStore, body: bytes, queue: QueueKey = QUEUE) -> int:
    """Appends a prepared record, such as a half message; it is in the log and in no queue."""
    block = block_of(queue.topic, [body], sys_flag=PREPARED, in_index=False)
    log = store._log
    segment = log.prepare(len(block.data), 1)
    offset = log.end
    block.patch_stored(
        queue_offset_first=0,
        physical_offset_first=offset,
        store_timestamp_ms=store._clock.now_ms(),
        store_host=STORE_HOST,
        queue_id=queue.queue_id,
    )
    log.write(block, segment)
    log.advance(block)
    return offset


def read_bodies(store: MessageStore, queue: QueueKey = QUEUE) -> list[bytes]:
    """Returns all bodies of a queue; skips removed and damaged ones as clients do."""
    bounds = store.range_of(queue)
    offset, found = bounds.min_offset, []
    while offset < bounds.max_offset:
        result = store.get_message(queue, offset, NO_END, ReadLimits.of_bytes(1 << 20))
        assert result.next_offset > offset, (result.status, offset)
        if result.status is GetMessageStatus.FOUND:
            data = b"".join(bytes(part) for part in result.parts)
            found += bodies_in(data, result.sizes.tolist(), queue, offset)
        else:
            assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        offset = result.next_offset
    return found


def bodies_in(data: bytes, sizes: list[int], queue: QueueKey, offset: int) -> list[bytes]:
    """Returns the bodies of adjacent records, each checked against its queue."""
    bodies, position = [], 0
    for number, size in enumerate(sizes):
        decoded = decode_record(data, position)
        record = decoded.record
        assert decoded.size == size
        place = (record.topic, record.queue_id, record.queue_offset)
        assert place == (*queue, offset + number)
        assert dict(record.properties)["TAGS"] == "tag"
        bodies.append(record.body)
        position += size
    assert position == len(data)
    return bodies

"""Our store and RocketMQ's over one directory: one writes, the other reads, both must agree.

`Stores` remembers all messages that either side wrote, and compares each side with them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.passes import RecoveryResult
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import (
    BlockColumns,
    Record,
    RecordBlock,
    decode_record,
    encode_block,
    encode_offset_message_id,
)
from tests.interop.rocketmq import Message, RocketMQStore
from tests.support.blocks import BORN_HOST, BORN_MS
from tests.support.store.messages import NO_END, flush_log
from tests.support.store.stores import store_in

PROPERTIES = pa.map_(pa.string(), pa.string())
# RocketMQ 5.5 rebuilds lost queues from ten segments at most.
READ_WHOLE_LOG = {"commitLogRecoverMaxNum": 1 << 20}
MakeStores = Callable[..., "Stores"]


@dataclass
class Stores:
    """One directory for us and a version of RocketMQ.

    `written` is the content that each queue must hold, in order.
    """

    folder: Path
    scratch: Path
    segment_bytes: int
    queue_file_bytes: int
    flush: FlushDiskType
    version: str
    written: dict[QueueKey, list[Message]] = field(default_factory=dict)

    def ours(self) -> MessageStore:
        """Returns our store, not yet open."""
        return store_in(
            self.folder,
            SystemClock(),
            self.flush,
            segment_bytes=self.segment_bytes,
            queue_file_bytes=self.queue_file_bytes,
        )

    def open_ours(self) -> MessageStore:
        """Returns our store, open."""
        store = self.ours()
        store.open()
        return store

    @contextmanager
    def rocketmq(self, **settings: object) -> Iterator[RocketMQStore]:
        """Yields RocketMQ's store, open; kills it at the end unless it was stopped."""
        with self._process() as store:
            sizes = self.segment_bytes, self.queue_file_bytes
            store.open(self.folder, *sizes, self.flush, settings)
            yield store

    def ask_config(self) -> dict[str, Any]:
        """Returns the content that RocketMQ's managers read below `config/`."""
        with self._process() as process:
            return process.ask("readConfig", folder=str(self.folder))

    def _process(self) -> RocketMQStore:
        return RocketMQStore(self.scratch / "rocketmq.log", self.scratch, self.version)

    def append_ours(
        self, store: MessageStore, queue: QueueKey, messages: Sequence[Message]
    ) -> None:
        """Appends one block with our store."""
        known = self.written.setdefault(queue, [])
        result = store.append(queue, block_of(queue.topic, messages))
        assert result.queue_offset == len(known)
        if self.flush is FlushDiskType.SYNC_FLUSH:
            flush_log(store)
        known.extend(messages)

    def put_rocketmq(
        self, store: RocketMQStore, queue: QueueKey, messages: Sequence[Message]
    ) -> None:
        """Puts one by one with RocketMQ's store."""
        known = self.written.setdefault(queue, [])
        for number, result in enumerate(store.put(queue, messages), len(known)):
            assert (result["status"], result["queueOffset"]) == ("PUT_OK", number)
        known.extend(messages)

    def put_batch_rocketmq(
        self, store: RocketMQStore, queue: QueueKey, messages: Sequence[Message]
    ) -> None:
        """Puts as one batch with RocketMQ's store."""
        known = self.written.setdefault(queue, [])
        result = store.put_batch(queue, messages)
        assert (result["status"], result["queueOffset"]) == ("PUT_OK", len(known))
        known.extend(messages)

    def check_ours(self, store: MessageStore) -> None:
        """Asserts that our store reads exactly the written messages."""
        assert set(store.queues()) == set(self.written)
        for queue, messages in self.written.items():
            assert [_message(record) for record in read(store, queue)] == messages

    def check_rocketmq(self, store: RocketMQStore) -> None:
        """Asserts that RocketMQ reads exactly the written messages, at their offsets."""
        for queue, messages in self.written.items():
            bounds = store.range(queue)
            assert (bounds["min"], bounds["max"]) == (0, len(messages)), queue
            records = store.dump(queue)
            assert [record["queueOffset"] for record in records] == list(range(len(messages)))
            found = [Message(record["body"], record["properties"]) for record in records]
            assert found == messages

    def check_both_read_the_same(self) -> RecoveryResult:
        """Asserts that each side, one after the other, reads the same in each header field."""
        with self.rocketmq() as theirs:
            self.check_rocketmq(theirs)
            dumps = {queue: theirs.dump(queue) for queue in self.written}
            theirs.stop()
        ours = self.ours()
        result = ours.open()
        self.check_ours(ours)
        for queue, dump in dumps.items():
            assert [as_rocketmq_sees(record) for record in read(ours, queue)] == dump
        ours.close()
        return result


def rebuilt_queues(stores: Stores) -> dict[Path, bytes]:
    """Returns the consume queue files that we rebuild from the log alone, by path."""
    shutil.rmtree(stores.folder / "consumequeue")
    (stores.folder / "abort").touch()
    store = stores.open_ours()
    store.close()
    return queue_files(stores)


def queue_files(stores: Stores) -> dict[Path, bytes]:
    """Returns the content of the consume queue files, by path."""
    files = (stores.folder / "consumequeue").rglob("*")
    return {path: path.read_bytes() for path in files if path.is_file()}


def block_of(topic: str, messages: Sequence[Message]) -> RecordBlock:
    """Returns a block as a client of ours sends it."""
    encoded = encode_block(
        BlockColumns(
            body=pa.array([message.body for message in messages], pa.binary()),
            topic=topic,
            queue_id=0,
            properties=pa.array([list(one.properties.items()) for one in messages], PROPERTIES),
            born_timestamp_ms=BORN_MS,
            born_host=BORN_HOST,
        )
    )
    return RecordBlock.parse(bytearray(encoded.data), encoded.sizes)


def read(store: MessageStore, queue: QueueKey) -> list[Record]:
    """Returns every record of a queue that our store serves."""
    offset = store.range_of(queue).min_offset
    records: list[Record] = []
    while True:
        result = store.get_message(queue, offset, NO_END, ReadLimits.of_bytes(1 << 20))
        if result.status is not GetMessageStatus.FOUND:
            assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
            return records
        data = b"".join(bytes(part) for part in result.parts)
        block = RecordBlock.parse(data, np.asarray(result.sizes))
        block.verify_body_crc()
        records += [decode_record(data, position).record for position in block.positions.tolist()]
        offset = result.next_offset


def as_rocketmq_sees(record: Record) -> dict[str, Any]:
    """Returns a record in the form of `RocketMQStore.dump`."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "body": record.body,
        "properties": dict(record.properties),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": str(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": str(record.store_host),
        "offsetMessageId": encode_offset_message_id(record.store_host, record.physical_offset),
    }


def messages(count: int, word: str = "message") -> list[Message]:
    """Returns different messages, every third one with tag, keys and more than ASCII."""
    made: list[Message] = []
    for number in range(count):
        rich = {"TAGS": f"Tag{number % 5}", "KEYS": f"{word}-{number} shared", "stadt": "Köln 😀"}
        made.append(Message(f"{word} {number}".encode(), {} if number % 3 else rich))
    return made


def _message(record: Record) -> Message:
    return Message(record.body, dict(record.properties))

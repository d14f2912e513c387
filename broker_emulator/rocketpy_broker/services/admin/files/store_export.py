"""Export of topics to Arrow or Parquet files, from a stopped store.

The columns are the columns of Spark's source. Messages are read, checked and written a block at a
time, so memory is bounded for any topic size. A file gets its name when it is complete; a crash
leaves at most `<name>.tmp`. The export does not change the store. After a broker crash,
messages that were not dispatched are exported only after the next broker start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.store.check.read_only import (
    ReadOnlyQueue,
    StoreReadLock,
    StoreSizes,
    load_log,
    queue_folder,
    queue_keys,
)
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.queues.open_files import OpenFiles
from rocketpy_broker.store.queues.readers.range_reader import Reader
from rocketpy_broker.store.queues.table import EMPTIED_NAME
from rocketpy_broker.store.recovery.plan import Traces
from rocketpy_broker.store.values import Damage, GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import (
    COLUMN_TYPES,
    NULLABLE_COLUMNS,
    RecordBlock,
    to_record_batches,
)

BLOCK_BYTES = 8 << 20
SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=name in NULLABLE_COLUMNS) for name, kind in COLUMN_TYPES.items()]
)
_EVERY_RECORD = 1 << 62
Advance = Callable[[int], None]
WriteBatch = Callable[[pa.RecordBatch], None]


class FileFormat(str, Enum):
    """The format of a message file."""

    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Topics to export, optionally one queue id and a span of store times.

    Times are in ms; `end_ms` is exclusive. `out` is a file, or a folder for one file per topic.
    """

    topics: Sequence[str]
    out: Path
    file_format: FileFormat
    queue_id: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    @property
    def has_span(self) -> bool:
        """True if the export is limited by store time."""
        return self.begin_ms is not None or self.end_ms is not None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The written messages and files; `damaged_count` messages were skipped."""

    message_count: int
    damaged_count: int
    paths: list[Path]


class StoreExport:
    """One export; entering its `with` block locks the store and finds the queues."""

    def __init__(self, folder: Path, sizes: StoreSizes, request: ExportRequest) -> None:
        self._folder = folder
        self._sizes = sizes
        self._request = request
        self._stack = ExitStack()
        self._queues: dict[QueueKey, ReadOnlyQueue] = {}
        self._log: CommitLog
        self._damaged_count = 0
        self.is_crashed = False

    def __enter__(self) -> StoreExport:
        """Locks the store and loads the queues.

        Raises ParameterIllegalError for a topic or queue without messages, and the errors of
        StoreReadLock.
        """
        with ExitStack() as stack:
            lock = stack.enter_context(StoreReadLock(self._folder))
            self._log = load_log(self._folder, self._sizes.segment_bytes).log
            stack.callback(self._log.close)
            traces = Traces.read(self._folder, started_last=lock.started_last)
            traces = traces.compared(self._log)
            self.is_crashed = traces.abnormal
            if not traces.ours:
                # Another broker wrote since. The checksums may be of records that are gone.
                self._log.checksums.close()
            files = OpenFiles(read_only=True)
            emptied = TopicMarks(self._folder / "config" / EMPTIED_NAME)
            emptied.load()
            for key in self._wanted():
                folder = queue_folder(self._folder, key)
                file_bytes = self._sizes.queue_file_bytes
                begin = max(self._log.begin, emptied.below(key.topic))
                queue = ReadOnlyQueue.load(folder, file_bytes, begin, files)
                stack.callback(queue.close)
                self._queues[key] = queue
            self._stack = stack.pop_all()
        return self

    def _wanted(self) -> Iterator[QueueKey]:
        request = self._request
        keys = queue_keys(self._folder)
        known = sorted({key.topic for key in keys})
        for topic in request.topics:
            if topic not in known:
                accepted = ", ".join(known) or "none: the store has no messages"
                raise ParameterIllegalError("topic", topic, accepted)
            ids = [key.queue_id for key in keys if key.topic == topic]
            if request.queue_id is not None and request.queue_id not in ids:
                accepted = f"one of topic {topic}: {', '.join(map(str, ids))}"
                raise ParameterIllegalError("queue", request.queue_id, accepted)
            for queue_id in ids if request.queue_id is None else [request.queue_id]:
                yield QueueKey(topic, queue_id)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the files and releases the lock."""
        self._stack.close()

    @property
    def message_count(self) -> int:
        """The total of messages that `run` reports to `advance`."""
        return sum(queue.max_offset - queue.min_offset for queue in self._queues.values())

    def run(self, advance: Advance = lambda _count: None) -> ExportResult:
        """Writes the files. Raises OSError."""
        request = self._request
        count, paths = 0, []
        targets: list[tuple[Path, list[str]]] = [(request.out, list(request.topics))]
        if request.out.is_dir():
            suffix = request.file_format.value
            targets = [(request.out / f"{topic}.{suffix}", [topic]) for topic in request.topics]
        for path, topics in targets:
            with _writing(path, request.file_format) as write:
                for batch in self._batches(set(topics), advance):
                    write(batch)
                    count += len(batch)
            paths.append(path)
        return ExportResult(count, self._damaged_count, paths)

    def _batches(self, topics: set[str], advance: Advance) -> Iterator[pa.RecordBatch]:
        reader = Reader(self._log, 0, self._count_damage, _EVERY_RECORD)
        limits = ReadLimits.of_bytes(BLOCK_BYTES)
        for key, queue in self._queues.items():
            offset = queue.min_offset if key.topic in topics else queue.max_offset
            while offset < queue.max_offset:
                result = reader.get_message(queue, offset, queue.max_offset, limits)
                if result.status is GetMessageStatus.FOUND:
                    data = b"".join(map(bytes, result.parts))
                    yield from self._decoded(RecordBlock.parse(data, result.sizes))
                assert result.next_offset > offset
                advance(result.next_offset - offset)
                offset = result.next_offset

    def _count_damage(self, damage: Damage) -> None:
        assert damage.length >= 0
        self._damaged_count += 1

    def _decoded(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yields a block's messages in the span; a body that cannot be inflated stays as stored."""
        request = self._request
        if request.has_span:
            times = block.header["store_timestamp"].astype(np.int64)
            wanted = times >= (request.begin_ms or 0)
            wanted &= times < (_EVERY_RECORD if request.end_ms is None else request.end_ms)
            block = block.filter(wanted)
        if len(block) > 0:
            yield from to_record_batches(block, SCHEMA)


@contextmanager
def _writing(path: Path, file_format: FileFormat) -> Iterator[WriteBatch]:
    """Yields a writer of batches to a file, which gets its name at the end of the block."""
    with durable.replacing(path, durable.SHARED_FILE_MODE) as file:
        if file_format is FileFormat.PARQUET:
            with pq.ParquetWriter(file, SCHEMA) as writer:
                yield writer.write_batch
        else:
            with pa.ipc.new_file(file, SCHEMA) as writer:
                yield writer.write_batch

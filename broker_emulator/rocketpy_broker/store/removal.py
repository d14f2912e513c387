"""Removal of old segments, of topics and of topics' messages.

Each removal has several steps. Blocking steps run on another thread than the store's. Only one
removal, of any kind, runs at a time.

A segment's removal is planned, run on another thread, and handed back, as a `FlushPlan` is. Files
are removed first: until the plan is handed back, readers keep the mappings of removed files. A
crash at any point leaves files for records that are no longer in the log. The next start or removal
deletes them.

A topic is marked as deleted, then forgotten, then its files are removed. A crash before the mark
keeps the whole topic. After a crash later than the mark, the next start removes the files.

A topic is emptied by a mark; then its queues start at their ends. After a crash later than the
mark, the topic is still empty. Its files are removed later, with the log's segments.

A slave shows removed messages again if its new master has not removed them. Their marks go last:
until then the next connection repeats the work.
Source: docs/design/storage.md section 10.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.dispatch import requests_of, topics_of
from rocketpy_broker.store.queues.expiry import QueueExpiry
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.recovery.passes import StoreParts
from rocketpy_proto.record.index_keys import tags_codes_and_index_keys

# A queue without new messages takes 0.4 microseconds, another one some 10.
QUEUES_A_STEP = 100
# Records of one step take some 10 ms.
STEP_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class SegmentRemoval:
    """The removal of a log segment, with its index files and queue files.

    The log starts at `log_begin` afterwards.
    """

    log_begin: int
    log_paths: list[Path]
    index_paths: list[Path]
    table: ConsumeQueueTable
    queues: list[ConsumeQueue]
    expiries: list[tuple[ConsumeQueue, QueueExpiry]]

    @classmethod
    def of(cls, parts: StoreParts) -> SegmentRemoval:
        """Returns the removal of the first of several segments."""
        log_begin = parts.log.files.segments[0].end
        index_paths = parts.index.expired(log_begin)
        return cls(
            log_begin, parts.log.first_paths(), index_paths, parts.queues, [*parts.queues], []
        )

    def run(self) -> None:
        """Removes the files. Blocks. Raises OSError; the next removal then repeats it."""
        # Without the segment, lost units can no longer be rebuilt from the log.
        self.table.flush()
        for path in self.log_paths:
            durable.remove_file(path)
        for queue in self.queues:
            expiry = queue.expiry(self.log_begin)
            if expiry is not None:
                expiry.remove_files()
                self.expiries.append((queue, expiry))
        for path in self.index_paths:
            durable.remove_file(path)

    def forget(self, parts: StoreParts) -> None:
        """Drops the removed files from the store's state, on the store's thread."""
        parts.log.drop_first()
        for queue, expiry in self.expiries:
            queue.expire(expiry)
        parts.index.drop_first(len(self.index_paths))


@dataclass(frozen=True, slots=True)
class TopicEmptying:
    """The removal of a topic's messages below `below` in the log; `ends` are its queues' ends."""

    topic: str
    log_begin: int
    below: int
    table: ConsumeQueueTable
    ends: list[tuple[ConsumeQueue, int]]

    @classmethod
    def of(cls, parts: StoreParts, topic: str, below: int) -> TopicEmptying:
        """Returns the removal; `below` is the physical end of the records that the queues have."""
        table = parts.queues
        ends = [(queue, queue.max_offset) for key, queue in table.items() if key.topic == topic]
        return cls(topic, parts.log.begin, below, table, ends)

    def run(self) -> None:
        """Saves the mark. Blocks. Raises OSError; then nothing has changed."""
        self.table.mark_emptied(self.topic, self.log_begin, self.below)

    def finish(self) -> None:
        """Moves the queues' starts, on the store's thread. Raises StoreReadError."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Yields after each millisecond or so of the work of `finish`."""
        for begin in range(0, len(self.ends), QUEUES_A_STEP):
            for queue, end in self.ends[begin : begin + QUEUES_A_STEP]:
                queue.hide_until(end)
            yield


@dataclass(frozen=True, slots=True)
class TopicReturn:
    """The return of topics' messages to a slave; the log has them.

    `deleted` and `emptied` have the marks that replace higher ones; -1 removes a mark. The order is
    `restore`, `save` and `show`. Meanwhile, no message is appended and no manifest is built.
    """

    parts: StoreParts
    deleted: Mapping[str, int]
    emptied: Mapping[str, int]

    def restore(self) -> Iterator[None]:
        """Adds the units of deleted messages; yields after each 10 ms of work or so.

        Raises OSError, StoreReadError.
        """
        log = self.parts.log
        if self.deleted:
            scanner = LogScanner(log, Trust(log.flushed, Checksummed.ALL), STEP_BYTES)
            for item in scanner.scan(log.begin):
                if isinstance(item, LogSpan):
                    self._add(item)
                yield

    def _add(self, span: LogSpan) -> None:
        topics = topics_of(span.block)
        if self.deleted.keys().isdisjoint(topics.dictionary.to_pylist()):
            return
        codes = tags_codes_and_index_keys(span.block, topics).tags_codes
        levels = self.parts.delay_levels
        for request in requests_of(span.block, topics, codes, span.offset, levels):
            below = self.deleted.get(request.queue.topic)
            alive = None if below is None else request.from_place(below)
            if alive is not None:
                self.parts.queues.grown(alive.queue).reconcile(alive.queue_offset, alive.units)

    def save(self) -> None:
        """Replaces the marks. Blocks. Any thread. Raises OSError."""
        # Once the marks are replaced, no start restores units that a power cut removes.
        self.parts.queues.flush()
        self.parts.queues.replace_marks(self.deleted, self.emptied)

    def show(self) -> Iterator[None]:
        """Moves the queues' starts; yields after some queues. Raises StoreReadError."""
        table, begin = self.parts.queues, self.parts.log.begin
        keys = table.marked({*self.deleted, *self.emptied})
        for number, key in enumerate(keys, 1):
            queue = table.get(key)
            if queue is not None:
                queue.show_from(max(begin, table.gone_below(key.topic)))
            if number % QUEUES_A_STEP == 0:
                yield


class TopicDeletions:
    """The deletion of topics: `mark`, `forget` and `remove_files` in one `refusing` block.

    A topic is emptied in an `emptying` block.
    """

    def __init__(
        self, parts: StoreParts, finish_append: Callable[[], None], forget: Callable[[str], None]
    ) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._finish_append = finish_append
        self.forget = forget
        self._refused: set[str] = set()
        self._being_emptied: Counter[str] = Counter()

    def is_deleting(self, topic: str) -> bool:
        """True if the topic is being deleted: it accepts no messages."""
        return topic in self._refused

    def check(self, topic: str) -> None:
        """Raises StoreClosedError for a topic that is being deleted."""
        if self.is_deleting(topic):
            raise StoreClosedError(f"topic {topic!r} is being deleted; try again later")

    @contextmanager
    def refusing(self, topic: str) -> Iterator[None]:
        """Refuses appends to `topic` for the duration of the block. Raises as `check` does."""
        self.check(topic)
        self._refused.add(topic)
        # The records of an append under way are deleted, too.
        self._finish_append()
        try:
            yield
        finally:
            self._refused.discard(topic)

    def is_emptying(self, topic: str) -> bool:
        """True if the topic is being emptied: redeliveries of its messages wait."""
        return topic in self._being_emptied

    @contextmanager
    def emptying(self, topic: str) -> Iterator[None]:
        """Delays redeliveries of the topic's messages for the duration of the block.

        Otherwise the copy of a message below the mark would be stored above the mark, and stay.
        """
        self._being_emptied += Counter([topic])
        try:
            yield
        finally:
            self._being_emptied -= Counter([topic])

    def mark(self, topic: str) -> None:
        """Marks the topic as deleted, so that recovery does not restore its messages. Blocks.

        Raises OSError; then nothing has changed.
        """
        self._queues.mark_deleted(topic, self._log.begin, self._log.end)

    def remove_files(self, topic: str) -> None:
        """Removes the files of a topic that is forgotten. Blocks. Raises OSError."""
        self._queues.remove_topic(topic)

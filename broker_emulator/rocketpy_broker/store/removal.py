"""Removing: the oldest segment of the log with what was about its records, and whole topics.

Each is done in steps, some of which block and run on another thread than the store's; one removal
of either kind at a time. Source: docs/design/storage.md section 10.5.

A segment's removal is planned, run elsewhere, and handed back, as a `FlushPlan` is. Files go first:
until it is handed back, readers have the mappings of what is gone. A crash at any point leaves
files about records that the log has no more, which the next start or removal takes.

A topic is marked as deleted, then forgotten, then its files are removed. A crash before the mark
leaves all of it, and one behind it nothing: the next start removes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.expiry import QueueExpiry
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.recovery.passes import StoreParts


@dataclass(frozen=True, slots=True)
class SegmentRemoval:
    """Files of the segment and of the index, and all queues; the log then begins at `log_begin`."""

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
        """Removes the files. Blocks. Raises OSError; the next removal then does it again."""
        # What the queues say of these records can be made from the log no more.
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
        """Forgets what has gone, on the store's thread."""
        parts.log.drop_first()
        for queue, expiry in self.expiries:
            queue.expire(expiry)
        parts.index.drop_first(len(self.index_paths))


class TopicDeletions:
    """Deletes topics: `mark`, `forget` and `remove_files`, all in one block of `refusing`."""

    def __init__(
        self, parts: StoreParts, settle: Callable[[], None], forget: Callable[[str], None]
    ) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._settle = settle
        self.forget = forget
        self._refused: set[str] = set()

    def check(self, topic: str) -> None:
        """Raises StoreClosedError for a topic that is being deleted."""
        if topic in self._refused:
            raise StoreClosedError(f"topic {topic!r} is being deleted; try again later")

    @contextmanager
    def refusing(self, topic: str) -> Iterator[None]:
        """Nothing is appended to `topic` for the time of the block. Raises as `check` does."""
        self.check(topic)
        self._refused.add(topic)
        # An append under way is one of those that are deleted.
        self._settle()
        try:
            yield
        finally:
            self._refused.discard(topic)

    def mark(self, topic: str) -> None:
        """Let none of its messages come back from the log. Blocks.

        Raises OSError; then nothing has changed.
        """
        self._queues.mark_deleted(topic, self._log.begin, self._log.end)

    def remove_files(self, topic: str) -> None:
        """Removes the files of a topic that is forgotten. Blocks. Raises OSError."""
        self._queues.remove_topic(topic)

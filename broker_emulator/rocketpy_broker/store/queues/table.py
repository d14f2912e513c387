"""All consume queues of a store.

Maps: (topic, queue id) to its ConsumeQueue, and so to the next queue offset. Folder:
`consumequeue/<topic>/<queueId>/`. Not checksummed; derived from the commit log. After a crash
queues are completed from the log. Used by the store alone.

A topic is deleted in three steps: its mark is saved, its queues are dropped, their folder is
removed. After the first step the messages are permanently deleted: a start completes the other
steps after a crash. An emptied topic has a mark, too. Its queues keep their units, which a start
compares with the log, and begin with newer records.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.files.links import QueueFolders
from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.open_files import OpenFiles
from rocketpy_broker.store.values import FilePrefix, QueueBounds, QueueKey

EMPTIED_NAME = "emptiedTopics.json"
KnownFiles = Mapping[QueueKey, Mapping[str, FilePrefix]]


@dataclass(frozen=True, slots=True)
class QueueFault:
    """A queue with unusable files, and the error; `folder` may be a file in its place."""

    folder: Path
    error: StoreDirectoryError

    @property
    def name(self) -> str:
        """The topic and the queue id, such as `TopicTest-0`."""
        return f"{self.folder.parent.name}-{self.folder.name}"


class ConsumeQueueTable:
    """The queues by key; a queue is created with its first message."""

    def __init__(self, folder: Path, marks_path: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._deleted = TopicMarks(marks_path)
        self._emptied = TopicMarks(marks_path.with_name(EMPTIED_NAME))
        self._open_files = OpenFiles()
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        # Queues with space for a message that is not yet dispatched; readers do not see them.
        self._reserved: dict[QueueKey, ConsumeQueue] = {}

    def load(
        self, folders: QueueFolders, *, own_sizes: bool, known: KnownFiles
    ) -> list[QueueFault]:
        """Opens every queue of these folders; returns the queues with unusable files.

        Compares the files with `known` first. With `own_sizes` the store was written with these
        file sizes, so a file of another size is damaged. Otherwise the requested size may be wrong:
        raises StoreDirectoryError.
        """
        self._deleted.load()
        self._emptied.load()
        faults = []
        for topic in sorted(folders):
            queues = folders[topic]
            for name in sorted(queues):
                if not name.isdecimal():
                    continue
                try:
                    self._load_queue(topic, name, queues[name], known)
                except StoreDirectoryError as error:
                    if not own_sizes:
                        raise
                    faults.append(QueueFault(self._folder / topic / name, error))
        return faults

    def _load_queue(
        self, topic: str, name: str, files: Collection[str] | None, known: KnownFiles
    ) -> None:
        key, folder = QueueKey(topic, int(name)), f"{self._folder}/{topic}/{name}"
        if files is None:
            raise StoreDirectoryError(
                Path(folder), "is a file where a queue has its folder", "move it out of the store"
            )
        prefixes = known.get(key)
        queue = ConsumeQueue.open(folder, self._file_bytes, self._open_files, prefixes, files)
        # A queue without units may belong to a recreated topic: it keeps its next offset.
        is_deleted = 0 < queue.physical_end <= self.deleted_below(topic)
        if is_deleted or queue.max_offset == 0:
            queue.close()
            shutil.rmtree(folder)
        else:
            self._queues[key] = queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def items(self) -> Iterable[tuple[QueueKey, ConsumeQueue]]:
        """Returns every queue with its key."""
        return self._queues.items()

    def keys(self) -> Collection[QueueKey]:
        """Returns the keys of all queues."""
        return self._queues.keys()

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        """Returns the queue, or None before its first message."""
        return self._queues.get(key)

    def range_of(self, key: QueueKey) -> QueueBounds:
        """Returns minimum and maximum offset; 0 and 0 for a queue without messages."""
        queue = self._queues.get(key)
        return QueueBounds(queue.min_offset, queue.max_offset) if queue else QueueBounds(0, 0)

    def reserve(self, key: QueueKey, max_offset: int) -> None:
        """Allocates space in the queue for its messages below `max_offset`. Raises OSError."""
        queue = self._queues.get(key) or self._reserved.get(key)
        if queue is None:
            queue = self._new(key)
            queue.reserve(max_offset)
            self._reserved[key] = queue
        else:
            queue.reserve(max_offset)

    def grown(self, key: QueueKey) -> ConsumeQueue:
        """Returns the queue, created if it is new."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._reserved.pop(key) if key in self._reserved else self._new(key)
            self._queues[key] = queue
        return queue

    def _new(self, key: QueueKey) -> ConsumeQueue:
        folder = f"{self._folder}/{key.topic}/{key.queue_id}"
        return ConsumeQueue(folder, self._file_bytes, self._open_files)

    def deleted_below(self, topic: str) -> int:
        """Returns the physical offset below which records of `topic` are deleted; -1 for none."""
        return self._deleted.below(topic)

    def gone_below(self, topic: str) -> int:
        """Returns the physical offset below which `topic` has no messages, by any mark."""
        return max(self._deleted.below(topic), self._emptied.below(topic))

    def mark_emptied(self, topic: str, log_begin: int, below: int) -> None:
        """Marks the messages of the topic below `below` as removed. Blocks. Raises OSError.

        Marks below the log's start are dropped.
        """
        over = {name for name, mark in self._emptied.marks.items() if mark <= log_begin}
        self._emptied.mark(topic, below, over)

    def mark_deleted(self, topic: str, log_begin: int, log_end: int) -> None:
        """Marks records of the topic below `log_end` as deleted. Blocks. Raises OSError.

        Marks below the log's start are dropped, so that their number stays bounded. The mark of a
        topic that has a folder is kept: the folder may be one that could not be removed.
        """
        over = {
            name
            for name, mark in self._deleted.marks.items()
            if mark <= log_begin and not (self._folder / name).exists()
        }
        self._deleted.mark(topic, log_end, over)

    @property
    def marks(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The physical offsets below which topics are deleted, and emptied."""
        return self._deleted.marks, self._emptied.marks

    def raise_marks(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> None:
        """Raises the marks to a master's; `apply_mark` follows. Blocks. Raises OSError."""
        self._deleted.raise_all(deleted)
        self._emptied.raise_all(emptied)

    def replace_marks(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> None:
        """Replaces the marks of these topics; -1 removes a mark. Blocks. Raises OSError."""
        self._deleted.replace_some(deleted)
        self._emptied.replace_some(emptied)

    def marked(self, topics: Collection[str]) -> list[QueueKey]:
        """Returns the queues of these topics."""
        return [key for key in self._queues if key.topic in topics]

    def apply_mark(self, key: QueueKey) -> bool:
        """Drops a queue that only has deleted messages; returns whether it did so.

        Hides emptied messages. Blocks. Raises OSError.
        """
        queue = self._queues.get(key)
        if queue is None:
            return False
        if queue.physical_end <= self.deleted_below(key.topic):
            self.drop(key)
            return True
        queue.hide_below(self._emptied.below(key.topic))
        return False

    def forget_topic(self, topic: str) -> None:
        """Drops the queues of a marked topic."""
        for queues in (self._queues, self._reserved):
            for key in [key for key in queues if key.topic == topic]:
                queues.pop(key).close()

    def drop(self, key: QueueKey) -> None:
        """Drops a queue and removes its files. Blocks. Raises OSError.

        A power cut may bring files back; the next start removes the ones of a marked topic.
        """
        queue = self._queues.pop(key, None)
        folder = self._folder / key.topic / str(key.queue_id)
        if queue is not None:
            queue.close()
            if folder.exists():
                shutil.rmtree(folder)

    def remove_topic(self, topic: str) -> None:
        """Removes the files of a topic without queues. Blocks. Raises OSError."""
        durable.remove_folder(self._folder / topic)

    def cut_marks(self, log_end: int) -> None:
        """Cuts marks of deleted and emptied topics to the log's end. Raises OSError."""
        self._deleted.cut(log_end)
        self._emptied.cut(log_end)

    def truncate(self, physical_end: int) -> None:
        """Drops units of records that end after `physical_end`."""
        for queue in self:
            queue.truncate(physical_end)

    def correct_min_offsets(self, log_begin: int) -> None:
        """Moves every queue's start to the first record still in the log and in its topic."""
        for key, queue in self.items():
            queue.correct_min_offset(log_begin)
            queue.hide_below(self._emptied.below(key.topic))

    def flush(self) -> None:
        """Makes every queue durable. Blocks. Raises OSError."""
        self._open_files.flush(self._folder)

    def close(self) -> None:
        """Closes every queue."""
        for queues in (self._queues, self._reserved):
            for queue in queues.values():
                queue.close()
            queues.clear()

"""Committed offsets of consumer groups: `config/consumerOffset.json`.

Offsets are in memory, saved every few seconds and at a clean stop. A crash loses the last seconds
of progress, never a message. A save takes a copy of the table, but not of its entries. The first
commit after a save copies the entry before it changes it. There may be a million entries, so loops
over all entries take scheduler slots.

A power cut or an older copy of the store may shorten a queue, which then assigns its offsets again.
A group beyond the end of its queue would never see the next messages stored there. The broker's
start therefore sets the group back to the end. RocketMQ does so at a pull, while the queue is still
shorter.

A Spark query continues from its checkpoint; this table only shows its progress to other tools.
RocketMQ's files are read unchanged. RocketMQ derives `groupTopicMap` from the table; this broker
neither reads nor writes it.
Source: ConsumerOffsetManager, docs/design/storage.md section 11.3.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rocketpy_broker.errors import AnswerTooLargeError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.config_files.data_version import DATA_VERSION, FileVersion
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_long
from rocketpy_broker.services.config_files.saver import SavePlan
from rocketpy_broker.services.offsets.micro_batches import MicroBatches
from rocketpy_broker.services.offsets.pending_resets import PendingResets
from rocketpy_broker.services.offsets.table import (
    SEPARATOR,
    OffsetTable,
    passed_ends,
)
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
NOT_COMMITTED = -1
TABLE = "offsetTable"
DERIVED = "groupTopicMap"
# A field of this broker; RocketMQ ignores it, and omits it when it saves.
RESETS = "rocketpyResets"
# Also of this broker: the log offset up to which the offsets cover all pops.
POP_LOG_OFFSET = "rocketpyPopLogOffset"
# A start reads the log from the saved offset on for pops: at most these bytes, and the bytes that
# were written until the next save.
POP_LOG_BYTES = 64 << 20
# A group with a commit within this time is in use, also without heartbeats of its clients.
COMMITTING_MS = 600_000
# A larger change of the difference of both clocks is a jump.
JUMP_MS = 1_000
# consumerOffsetUpdateVersionStep: commits per change of the data version.
COMMITS_PER_VERSION = 500
# Entries logged one by one when a start sets groups back; further entries are only counted.
CHANGES_MAX = 20
# Entries per scheduler slot: some ms.
ENTRIES_A_SLOT = 5_000


class ConsumerOffsetManager:
    """Table topic@group -> queue id -> next offset to consume."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = ConfigFile(
            folder / "consumerOffset.json", (DATA_VERSION, TABLE, DERIVED, RESETS, POP_LOG_OFFSET)
        )
        self._clock = clock
        self._table = OffsetTable()
        # Monotonic times of the last commits since the start, of entries that exist.
        self._committed_ms: dict[str, float] = {}
        # The wall time at which monotonic time is 0.
        self._began_ms = clock.now_ms() - clock.monotonic_ms()
        self.resets = PendingResets(clock)
        self.micro_batches = MicroBatches(clock)
        # Called before a reset, and before the deletion of a group.
        self.resetting = Listeners[[]]()
        # None in a directory without pops since RocketMQ used it.
        self.pop_log_offset: int | None = None
        self._version = FileVersion()
        self._commits = 0
        self._pop_log_saved = 0
        self._change_count = 0
        self._saved_count = 0, 0

    def load(self) -> None:
        """Reads the file if it exists. Raises ConfigFileError."""

        def decode(content: Mapping[str, Any]) -> tuple[FileVersion, list[OffsetTable]]:
            # RocketMQ 4 writes no data version.
            version = FileVersion.from_json(content.get(DATA_VERSION))
            pops = content.get(POP_LOG_OFFSET)
            self.pop_log_offset = None if pops is None else as_long(pops)
            return version, [OffsetTable.from_json(content.get(name)) for name in (TABLE, RESETS)]

        loaded = self._file.load(decode)
        if loaded is not None:
            self._version, (self._table, resets) = loaded
            self.resets.load(resets)

    def set_back(self, range_of: Callable[[QueueKey], QueueBounds]) -> None:
        """Sets groups beyond the end of a queue back to its end.

        The queues must already match the log. The caller saves the changes before queues grow: a
        queue may reach the old offset by the next start.
        """
        self.resets.set_back(range_of)
        changes = []
        for key, offsets in self._table.items():
            topic = key.partition(SEPARATOR)[0]
            beyond = passed_ends(topic, offsets, range_of)
            if beyond:
                each = (f"queue {i} at {offsets[i]}, ends at {end}" for i, end in beyond.items())
                changes.append(f"{key}: {'; '.join(each)}")
                self._table[key] = {**offsets, **beyond}
                self._change_count += 1
        for text in changes[:CHANGES_MAX]:
            logger.warning("%s: the queue was longer; the group continues at its end", text)
        if changes[CHANGES_MAX:]:
            logger.warning(
                "%s at the ends of shortened queues, too",
                counted(len(changes) - CHANGES_MAX, "more group continues", "more groups continue"),
            )

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the next offset of a queue."""
        key = topic + SEPARATOR + group
        self._table.own(key)[queue_id] = offset
        self._committed_ms[key] = self._clock.monotonic_ms()
        self._change_count += 1
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self._version = self._version.next(self._clock.now_ms())

    def cover_pops(self, log_offset: int) -> None:
        """Notes that the offsets cover all pops in the log up to `log_offset`, and never less."""
        is_first = self.pop_log_offset is None
        self.pop_log_offset = max(log_offset, self.pop_log_offset or 0)
        if is_first or log_offset - self._pop_log_saved >= POP_LOG_BYTES:
            self._change_count += 1

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the next offset of a queue, or NOT_COMMITTED."""
        return self._table.get(topic + SEPARATOR + group, {}).get(queue_id, NOT_COMMITTED)

    async def entries(self) -> AsyncIterator[tuple[str, str]]:
        """Yields topic and group of the entries at the start of the call, with scheduler slots.

        Omits RocketMQ's entries of broadcasting groups, which also name a client.
        """
        async for keys in self._keys():
            for key in keys:
                topic, *groups = key.split(SEPARATOR)
                if len(groups) == 1:
                    yield topic, groups[0]

    async def _keys(self) -> AsyncIterator[list[str]]:
        keys = list(self._table)
        for begin in range(0, len(keys), ENTRIES_A_SLOT):
            await take_slot()
            yield keys[begin : begin + ENTRIES_A_SLOT]

    def has(self, group: str, topic: str) -> bool:
        """True if the entry exists."""
        return topic + SEPARATOR + group in self._table

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        """Returns a copy of an entry, by queue id; empty if it does not exist."""
        return dict(self._table.get(topic + SEPARATOR + group, ()))

    def last_commit_ms(self, group: str, topic: str) -> int | None:
        """Returns the time of the group's last commit in the topic, ms since 1970.

        None before the first commit since the start.
        """
        committed_ms = self._committed_ms.get(topic + SEPARATOR + group)
        if committed_ms is None:
            return None
        # The difference of both clocks varies by milliseconds only, unless one has jumped.
        began_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        if abs(began_ms - self._began_ms) > JUMP_MS:
            self._began_ms = began_ms
        return int(self._began_ms + committed_ms)

    def is_committing(self, group: str, topic: str) -> bool:
        """True if the group has committed in the topic within the last ten minutes."""
        committed_ms = self._committed_ms.get(topic + SEPARATOR + group)
        if committed_ms is None:
            return False
        return self._clock.monotonic_ms() - committed_ms <= COMMITTING_MS

    def delete_if(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """Deletes an entry if it equals `offsets`; returns whether it was equal."""
        key = topic + SEPARATOR + group
        is_same = self._table.get(key) == offsets
        if is_same:
            self._delete([key])
        return is_same

    async def replicate(self, table: OffsetTable) -> None:
        """Replaces the entries with the master's; entries of broadcasting groups may stay."""
        await self._delete_all(lambda key: key not in table)
        keys = list(table)
        for begin in range(0, len(keys), ENTRIES_A_SLOT):
            await take_slot()
            changed = {
                key: table[key]
                for key in keys[begin : begin + ENTRIES_A_SLOT]
                if self._table.get(key) != table[key]
            }
            for key, queues in changed.items():
                self._table.own(key).clear()
                self._table[key].update(queues)
            if changed:
                self._version = self._version.next(self._clock.now_ms())
                self._change_count += 1

    async def delete_topic(self, topic: str) -> None:
        """Deletes every group's progress in a topic; the caller prevents commits meanwhile."""
        self.resets.forget_topic(topic)
        await self._delete_all(lambda key: key.startswith(topic + SEPARATOR))

    async def delete_group(self, group: str) -> None:
        """Deletes the progress of a group; its commits meanwhile may stay."""
        self.resets.forget_group(group)
        self.micro_batches.forget(group)
        await self._delete_all(lambda key: key.endswith(SEPARATOR + group))

    async def _delete_all(self, is_gone: Callable[[str], bool]) -> None:
        async for keys in self._keys():
            gone = [key for key in keys if is_gone(key) and key.count(SEPARATOR) == 1]
            self._delete([key for key in gone if key in self._table])

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
            self._committed_ms.pop(key, None)
        if keys:
            self._version = self._version.next(self._clock.now_ms())
            self._change_count += 1

    async def to_json(self, bytes_max: int) -> bytes:
        """Returns the table in the JSON of RocketMQ's answer; takes scheduler slots.

        Raises AnswerTooLargeError beyond about `bytes_max` bytes.
        """
        parts: list[bytes] = []
        size = 0
        async for keys in self._keys():
            entries = {key: self._table[key] for key in keys if key in self._table}
            if entries:
                parts.append(msgspec.json.encode(entries)[1:-1])
                size += len(parts[-1])
            if size > bytes_max:
                raise AnswerTooLargeError("the table of consumer offsets", bytes_max)
        version = msgspec.json.encode(self._version.to_json(), order="sorted")
        return b'{"dataVersion":%b,"offsetTable":{%b}}' % (version, b",".join(parts))

    def plan_save(self) -> SavePlan | None:
        """Returns a plan that saves the changes; None without changes."""
        count = self._change_count, self.resets.change_count
        if count == self._saved_count:
            return None
        content = {
            DATA_VERSION: self._version.to_json(),
            TABLE: self._table.snapshot(),
            RESETS: self.resets.snapshot(),
            POP_LOG_OFFSET: self.pop_log_offset,
        }
        self._pop_log_saved = self.pop_log_offset or 0

        def saved() -> None:
            self._saved_count = count

        return SavePlan(lambda: self._file.save(content), saved)

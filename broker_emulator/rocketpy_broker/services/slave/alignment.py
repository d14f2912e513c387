"""The repair of a slave's log that differs from its master's.

The logs are equal up to some offset and differ after it. The newest segment whose first record is
equal is compared from its start on. The slave's records from the first difference on are copied
into quarantine and removed. The slave then follows its master again.
Source: ours; RocketMQ's slave does not notice that the logs differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketpy_broker.services.slave.errors import MasterLostError, MasterRefusedError
from rocketpy_broker.services.slave.log_sync import OpenStream
from rocketpy_broker.services.slave.master import MasterFacts
from rocketpy_broker.store.files.promotion import Promotion
from rocketpy_broker.store.log.scanner import LogSpan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import topics_of
from rocketpy_proto.record import BLANK_BYTES

WAIT_MS, SILENT_MS_MAX = 1_000, 30_000


@dataclass(frozen=True, slots=True)
class Alignment:
    """The place where two logs part, and the slave's messages from there on, by topic."""

    common_end: int
    own_end: int
    message_counts: Counter[str] = field(default_factory=Counter)
    kept: list[Path] = field(default_factory=list)


def check_promotion(found: Alignment, known: Promotion) -> None:
    """Raises MasterRefusedError for a master that has none of a promoted store's own messages.

    A master of RocketMQ has no epoch. But its log has some of them if it was a slave after the
    promotion.
    """
    if found.common_end <= known.log_end < found.own_end:
        raise MasterRefusedError(
            "its log has none of the messages that this store got since its promotion of epoch "
            f"{known.epoch}, so it may be the old master, which has come back. Make it a slave of "
            "this store's broker, or start this one with an empty directory"
        )


class LogAlignment:
    """The comparison of an open store with a master; `cut` removes the difference."""

    def __init__(
        self,
        store: MessageStore,
        facts: MasterFacts,
        host: str,
        open_stream: OpenStream,
        advance: Callable[[int], None],
    ) -> None:
        """Takes in the master's facts and host; calls `advance` with each number of bytes read."""
        self._store = store
        self._host = host
        self._port = facts.ha_port
        self._open = open_stream
        self._advance = advance
        positions = store.positions()
        self._begin = max(positions.log_begin, facts.log_begin)
        self._own_end = positions.log_end
        self._end = min(positions.log_end, facts.log_end)

    async def compare(self) -> Alignment:
        """Returns where the logs part. Raises MasterLostError, MasterRefusedError."""
        base = await self._equal_segment()
        common = self._record_end(base, await self._equal_end(base, self._end))
        counts: Counter[str] = Counter()
        if common < self._own_end:
            for item in self._store.scan(common):
                if isinstance(item, LogSpan):
                    counts.update(topics_of(item.block).to_pylist())
        return Alignment(common, self._own_end, counts)

    def cut(self, found: Alignment) -> Alignment:
        """Removes the slave's messages after the common part. Blocks. Raises OSError."""
        return replace(found, kept=self._store.cut(found.common_end))

    async def _equal_segment(self) -> int:
        """Returns the start of the newest segment whose first record both logs have."""
        size = self._store.config.commit_log_segment_bytes
        bases = range(self._begin, self._end, size)
        for base in reversed(bases):
            end = min(base + self._first_size(base), self._end)
            if await self._equal_end(base, end) == end:
                return base
        raise MasterRefusedError(
            "its log has no part in common with this slave's. Start the slave with an empty "
            "directory"
        )

    def _first_size(self, base: int) -> int:
        """Returns the size of a segment's first record; no other has its place, time and hosts."""
        for item in self._store.scan(base):
            if isinstance(item, LogSpan):
                return int(item.block.sizes[0])
            break
        return BLANK_BYTES

    async def _equal_end(self, begin: int, end: int) -> int:
        """Returns the offset of the first difference in [begin, end), or `end`."""
        differs: list[int] = []

        def compare(offset: int, data: memoryview) -> None:
            while len(data) and not differs and offset < end:
                own = self._store.log_piece(offset, min(len(data), end - offset))
                if own != data[: len(own)]:
                    pairs = zip(own, data, strict=False)
                    differs.append(offset + next(i for i, (a, b) in enumerate(pairs) if a != b))
                self._advance(len(own))
                offset, data = offset + len(own), data[len(own) :]

        # RocketMQ answers a request for offset 0 with its last segment. Byte 0 is 0 in each log.
        begin = max(begin, 1)
        stream = await self._open(self._host, self._port, compare)
        try:
            stream.begin(begin)
            # The master has said that its log is longer: a heartbeat in between is no end.
            silent_ms, reached = 0, begin
            while not differs and stream.next_offset < end:
                await stream.arrived(WAIT_MS)
                silent_ms = 0 if stream.next_offset > reached else silent_ms + WAIT_MS
                reached = stream.next_offset
                if silent_ms > SILENT_MS_MAX:
                    raise MasterLostError(
                        f"it has sent nothing of its log after offset {reached} for {silent_ms} "
                        "ms; try again"
                    )
        finally:
            stream.close()
        return differs[0] if differs else end

    def _record_end(self, base: int, offset: int) -> int:
        """Returns the end of the last whole record up to `offset`, from a segment's start on."""
        end = base
        if offset == self._own_end:
            return offset
        for item in self._store.scan(base):
            if not isinstance(item, LogSpan):
                break
            ends = item.offset + item.block.positions + item.block.sizes
            whole = ends[ends <= offset]
            if len(whole) == 0:
                break
            end = int(whole[-1])
            if len(whole) < len(ends):
                break
        return end

"""The task that copies the master's log.

The slave asks for the log from a little before the end of its own. So the bytes that both have are
compared first. The slave detects a master with another log before it reports an offset that counts
as an acknowledgement. An earlier master may have deleted a topic shortly before its end, and this
master may lack that deletion. The slave then restores the topic's messages. An empty slave asks
from the second byte of the master's log on: RocketMQ answers offset 0 with its last segment. The
first byte is 0 in each log. After a failure the slave tries again; state is in the store alone.
Source: DefaultHAClient, docs/design/cluster.md section 4.1; the comparison is ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError, StoreClosedError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.slave.errors import MasterRefusedError
from rocketpy_broker.services.slave.master import Master, MasterFacts, MasterFinder
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.store.append.log_copy import QueueRestartedError
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.promotion import PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
# RocketMQ's slave connects again after 5 s, too.
RETRY_MS = 5_000
# haSendHeartbeatInterval.
REPORT_MS = 5_000
WAIT_MS = 1_000
# Bytes before the log's end that are compared at each connection.
COMPARED_BYTES = 64 << 10
TOPICS_NAMED = 10


class LogStream(Protocol):
    """A connection to the master's port for slaves."""

    next_offset: int
    heartbeat_end: int | None

    def begin(self, offset: int) -> None:
        """Asks for the log from `offset` on; 0 asks for the last segment."""

    def report(self, offset: int) -> None:
        """Reports the end of the slave's log."""

    async def arrived(self, wait_ms: float) -> None:
        """Waits for bytes, at most `wait_ms`. Raises the error that has ended the connection."""

    def wake(self) -> None:
        """Ends the wait of `arrived`."""

    def pause(self, *, is_paused: bool) -> None:
        """Reads nothing more from the connection, or reads again."""

    def close(self) -> None:
        """Ends the connection."""


# Connects to host and port; the function gets each piece of the log with its offset.
OpenStream = Callable[[str, int, Callable[[int, memoryview], None]], Awaitable[LogStream]]


class LogSync:
    """The task that copies the master's log to one slave; `run` is its loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        flush: FlushServices,
        finder: MasterFinder,
        open_stream: OpenStream,
        state: SlaveState,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._copy = store.copy
        self._flush = flush
        self._finder = finder
        self._open = open_stream
        self._state = state
        self._clock = clock
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._throttle = LogThrottle(clock)
        self._stream: LogStream | None = None
        self._promotion = PromotionFile(store.config.folder)
        self._epoch = 0
        self._recoveries: tuple[tuple[str, int], ...] = ()
        self._reported = 0
        self._reported_ms = 0.0
        flush.group_commit.flushed.add(lambda _ms: self._wake())

    def _wake(self) -> None:
        if self._stream is not None:
            self._stream.wake()

    async def run(self) -> None:
        """Follows the master until cancelled, again after each failure."""
        while True:
            try:
                await self._follow()
            except (BrokerError, OSError) as error:
                self._failed(error)
            finally:
                self._stream, self._state.is_connected = None, False
            await sleep(self._clock, RETRY_MS)

    def _failed(self, error: Exception) -> None:
        reason = str(error)
        is_new = reason != self._state.failure
        self._state.failure = reason
        if is_new or self._throttle.may_log():
            master = self._state.master or self._config.broker_name
            logger.warning("the slave does not follow master %s: %s", master, reason)

    async def _follow(self) -> None:
        self._copy.drop_received()
        master = await self._finder.find()
        self._state.master = master.address
        try:
            facts = await master.facts()
        finally:
            master.close()
        facts.check(self._config.broker_name, self._config.commit_log_segment_bytes)
        self._state.master_end = facts.log_end
        facts.check_epoch(self._promotion.epoch)
        begin = self._begin(facts)
        self._epoch = facts.epoch
        self._recoveries = () if facts.state is None else facts.state.recoveries
        host = master.address.rpartition(":")[0].strip("[]")
        stream = await self._open(host, facts.ha_port, self._copy.receive)
        try:
            stream.begin(begin)
            self._stream = stream
            self._reported, self._reported_ms = begin, self._clock.monotonic_ms()
            await self._receive(stream, master)
        finally:
            stream.close()

    def _begin(self, facts: MasterFacts) -> int:
        """Returns the offset at which the copy continues. Raises MasterRefusedError, OSError."""
        positions = self._store.positions()
        own_begin, own_end = positions.log_begin, positions.log_end
        is_empty = own_begin == own_end
        if facts.state is not None and facts.state.store_id != self._store.store_id:
            if not is_empty:
                raise MasterRefusedError(
                    f"it has store {facts.state.store_id:.100}, and this slave has messages of "
                    f"store {self._store.store_id}. Start the slave with an empty directory"
                )
            self._store.adopt_id(facts.state.store_id)
        if is_empty:
            self._copy.begin(facts.log_begin)
            is_master_empty = facts.log_begin == facts.log_end
            return facts.log_begin if is_master_empty else self._copy.received_end
        if own_end > facts.log_end:
            raise _shorter(facts.log_end, own_end)
        if own_end < facts.log_begin:
            raise MasterRefusedError(
                f"its log begins at {facts.log_begin}, and this slave's ends at {own_end}. Start "
                "the slave with an empty directory"
            )
        # At least one whole record is compared: the bytes of a body alone may be equal by chance.
        compared = min(own_end - COMPARED_BYTES, self._copy.last_record_begin)
        return max(own_begin, facts.log_begin, compared, 1)

    # --- The stream ---

    async def _receive(self, stream: LogStream, master: Master) -> None:
        """Takes in the log until the connection ends. Raises BrokerError, OSError."""
        while True:
            await stream.arrived(WAIT_MS)
            await self._store_all(stream, master)
            end = self._store.positions().log_end
            if stream.heartbeat_end is not None and stream.heartbeat_end < end:
                raise _shorter(stream.heartbeat_end, end)
            await self._report(stream, master)

    async def _store_all(self, stream: LogStream, master: Master) -> None:
        """Adds all whole records to the log, in scheduler slots in turn with clients' calls."""
        while True:
            stream.pause(is_paused=self._copy.is_far_ahead)
            await take_slot("ha")
            if self._store.is_sealed:
                raise StoreClosedError(self._store.refusal or "the store is closed")
            try:
                if not self._copy.store_some():
                    stream.pause(is_paused=False)
                    return
            except QueueRestartedError as restarted:
                async with self._flush.store_files.removing_nothing():
                    self._copy.restart(restarted.queue, restarted.below)
            if self._is_sync:
                self._flush.group_commit.flush_soon()
            await self._report(stream, master)

    async def _report(self, stream: LogStream, master: Master) -> None:
        """Reports the log's end, once the master is known to have the same log up to there."""
        positions, now_ms = self._store.positions(), self._clock.monotonic_ms()
        is_same = stream.next_offset >= positions.log_end
        if is_same and not self._state.is_connected:
            # Only now: before, the slave might have had other messages than its master.
            stream.pause(is_paused=True)
            await self._undo_removals(master)
            stream.pause(is_paused=False)
            if self._store.recoveries.adopt(self._recoveries):
                self._promotion.follow(self._epoch, positions.log_end, self._clock.now_ms())
            self._state.is_connected, self._state.failure = True, ""
            logger.info("the slave follows master %s", self._state.master)
        self._state.master_end = max(self._state.master_end, stream.next_offset)
        end = self._store.flushed_end if self._is_sync else positions.log_end
        if is_same and end > self._reported:
            self._reported = end
        elif now_ms - self._reported_ms < REPORT_MS:
            return
        self._reported_ms = now_ms
        stream.report(self._reported)

    async def _undo_removals(self, master: Master) -> None:
        """Restores messages of topics that this store has removed, and its master has not.

        The master is asked once its log is known to hold all of this slave's log. Its answer then
        has all its own removals. RocketMQ's masters have no marks. Raises BrokerError, OSError.
        """
        own_deleted, own_emptied = self._store.topic_marks
        if not (own_deleted or own_emptied):
            return
        try:
            state = await master.state()
            log_begin, _ = await master.log_range()
        finally:
            master.close()
        if state is None:
            return
        deleted = _lower(own_deleted, state.deleted_below, log_begin)
        emptied = _lower(own_emptied, state.emptied_below, log_begin)
        topics = sorted({*deleted, *emptied})
        if not topics:
            return
        logger.warning(
            "the master has messages of %s that were removed here, and they return: %s",
            *(counted(len(topics), "topic"), ", ".join(map(repr, topics[:TOPICS_NAMED]))),
        )
        async with self._flush.store_files.removing_nothing():
            returned = self._store.plan_return(deleted, emptied)
            for _ in returned.restore():
                await take_slot("ha")
            await run_shielded(asyncio.to_thread(returned.save))
            for _ in returned.show():
                await take_slot("ha")


def _lower(own: Mapping[str, int], master: Mapping[str, int], log_begin: int) -> dict[str, int]:
    """Returns the master's marks, -1 for none, that are lower than this store's.

    A master drops the marks below the start of its log.
    """
    marks = {topic: master.get(topic, -1) for topic in own}
    return {topic: mark for topic, mark in marks.items() if own[topic] > max(mark, log_begin)}


def _shorter(master_end: int, own_end: int) -> MasterRefusedError:
    return MasterRefusedError(
        f"its log ends at {master_end}, and this slave's ends at {own_end}: the slave has messages "
        "that the master has lost or never had. Stop the slave and run `rocketpy store align`"
    )

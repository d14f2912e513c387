"""The master's topics, groups and offsets on a slave.

They are compared, and only differences are saved. Offsets of consumers and delay levels refer to
messages. So a slave takes them in once it has all messages that the master had when it answered.
Marks of deleted and emptied topics come from masters of this project alone. With a RocketMQ master,
a deleted topic loses only its configuration. Its messages stay until their segments are removed.
Source: SlaveSynchronize, docs/design/cluster.md section 4.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.delay.offsets import decode_offsets
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.services.groups.entry import GroupEntry
from rocketpy_broker.services.groups.manager import FORBIDDEN, GROUP_PATTERN, PREDEFINED
from rocketpy_broker.services.groups.manager import TABLE as GROUPS
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import TABLE as OFFSETS
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.table import OffsetTable
from rocketpy_broker.services.slave.errors import MasterLostError, MasterRefusedError
from rocketpy_broker.services.slave.master import Connect, Master
from rocketpy_broker.services.slave.progress_files import ProgressFiles, reset_progress
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_broker.services.topics.manager import TABLE as TOPICS
from rocketpy_broker.services.topics.manager import (
    TOPIC_BYTES_MAX,
    TOPIC_PATTERN,
    TopicConfigManager,
)
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.remoting.bodies.configs import ReplicationState
from rocketpy_proto.remoting.json_text import parse_json

logger = logging.getLogger(__name__)
# RocketMQ 4 asks every 10 s, RocketMQ 5 every 60 s.
INTERVAL_MS = 10_000
# The pause while the slave has no master, or lacks messages.
PAUSE_MS = 500
Entry = TypeVar("Entry")


class ConfigSync:
    """The task that copies the master's tables; `run` is its loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        store_files: StoreFiles,
        topics: TopicConfigManager,
        groups: Groups,
        committed: ConsumerOffsetManager,
        connect: Connect,
        state: SlaveState,
        clock: Clock,
    ) -> None:
        self._folder: Path = config.config_folder
        self._progress = ProgressFiles(config.config_folder)
        self._store = store
        self._store_files = store_files
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._connect = connect
        self._state = state
        self._clock = clock
        self._throttle = LogThrottle(clock)
        self._delay_text = b""
        # True once the progress was reset, because the master is one of RocketMQ.
        self._is_reset = False

    async def run(self) -> None:
        """Takes in the master's tables every INTERVAL_MS until cancelled."""
        while True:
            while not self._state.is_connected:
                await sleep(self._clock, PAUSE_MS)
            address = self._state.master
            master = Master(address, self._connect(address))
            try:
                while self._has_master(address):
                    await self._sync(master)
                    await sleep(self._clock, INTERVAL_MS)
            except (BrokerError, OSError) as error:
                if self._throttle.may_log():
                    logger.warning("the tables of master %s are not copied: %s", address, error)
                await sleep(self._clock, INTERVAL_MS)
            finally:
                master.close()

    def _has_master(self, address: str) -> bool:
        return self._state.is_connected and self._state.master == address

    async def _sync(self, master: Master) -> None:
        """Takes in all tables once. Raises MasterLostError, MasterRefusedError, OSError."""
        state = await master.state()
        begin, end = await master.log_range()
        self._store.copied_from = begin
        self._state.master_end = max(self._state.master_end, end)
        topics = await master.table(RequestCode.GET_ALL_TOPIC_CONFIG)
        groups = await master.table(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        try:
            await self._take_topics(topics, {} if state is None else state.epochs)
            # The master creates a topic before its first message.
            self._state.topics_end = end
            await self._take_groups(groups)
            if state is not None:
                await self._take_marks(state, end)
            # Read before the delay offsets. So each delivery that they lack is in the log after the
            # progress's log offset.
            progress = None if state is None else await self._progress.changed(master)
            offsets = await master.table(RequestCode.GET_ALL_CONSUMER_OFFSET)
            delays = await master.text(RequestCode.GET_ALL_DELAY_OFFSET)
            await asyncio.to_thread(_check_delays, delays)
            _, end = await master.log_range()
            await self._has_log(end)
            table = await asyncio.to_thread(OffsetTable.from_json, offsets.get(OFFSETS))
            await self._committed.replicate(table)
            if delays != self._delay_text:
                path = self._folder / "delayOffset.json"
                work = asyncio.to_thread(durable.replace_encoded, path, delays)
                # A promotion must not read the files while a thread still replaces them.
                await run_shielded(work)
                self._delay_text = delays
            if progress is not None:
                await self._progress.save(progress, end)
            elif not self._is_reset:
                await run_shielded(asyncio.to_thread(reset_progress, self._folder))
            self._is_reset = progress is None
        except ValueError as error:
            raise MasterRefusedError(f"one of its tables cannot be read: {error!s:.300}") from error
        self._state.synced_ms = self._clock.now_ms()

    async def _has_log(self, end: int) -> None:
        """Waits until the slave has the log on disk up to `end`. Raises MasterLostError."""
        while self._store.flushed_end < end:
            if not self._state.is_connected:
                raise MasterLostError("the slave has lost its master before it had all messages")
            await sleep(self._clock, PAUSE_MS)

    async def _take_topics(self, table: Mapping[str, Any], epochs: Mapping[str, int]) -> None:
        own = self._topics.copy()

        def changes() -> dict[str, TopicEntry | None]:
            entries = {
                topic: TopicEntry.from_json(topic, entry)
                for topic, entry in as_object(table.get(TOPICS)).items()
                if TOPIC_PATTERN.fullmatch(topic) and len(topic) <= TOPIC_BYTES_MAX
            }
            if not any(map(self._topics.is_system, entries)):
                # Each broker has some.
                raise MasterRefusedError(
                    "its table of topics has no system topic, so it is not a broker's table. Start "
                    "the slave with the address of a broker as --master"
                )
            known = {
                topic: replace(each, epoch=epochs.get(topic, each.epoch))
                for topic, each in entries.items()
            }
            gone = {topic for topic in own if not self._topics.is_system(topic)} - known.keys()
            return _differences(own, known, gone)

        await self._topics.replicate(await asyncio.to_thread(changes))

    async def _take_groups(self, table: Mapping[str, Any]) -> None:
        own = self._groups.configs.copy()
        # A consumer of the slave may have created its group here.
        in_use = {*self._groups.clients.consumers.names(), *PREDEFINED}

        def changes() -> dict[str, GroupEntry | None]:
            entries = {
                group: GroupEntry.from_json(group, entry)
                for group, entry in as_object(table.get(GROUPS)).items()
                if GROUP_PATTERN.fullmatch(group)
            }
            return _differences(own, entries, own.keys() - entries.keys() - in_use)

        forbidden = as_object(table.get(FORBIDDEN))
        await self._groups.configs.replicate(await asyncio.to_thread(changes), forbidden)

    async def _take_marks(self, state: ReplicationState, log_end: int) -> None:
        copy, marks = self._store.copy, (state.deleted_below, state.emptied_below)
        if any(mark > log_end for each in marks for mark in each.values()):
            raise MasterRefusedError(
                f"it has marks of deleted or emptied topics beyond its log's end {log_end}"
            )
        if not copy.has_marks(*marks):
            async with self._store_files.removing_nothing():
                await asyncio.to_thread(copy.save_marks, *marks)
                for _ in copy.apply_marks(*marks):
                    await take_slot("admin")


def _check_delays(text: bytes) -> None:
    """Raises ValueError for a text that a start of this broker would refuse."""
    decode_offsets(as_object(parse_json(text, "it is no JSON")))


def _differences(
    own: Mapping[str, Entry], master: Mapping[str, Entry], gone: Collection[str]
) -> dict[str, Entry | None]:
    """Returns the entries that differ from the master's, and None for the ones that are gone."""
    changed = {name: each for name, each in master.items() if own.get(name) != each}
    return {**changed, **dict.fromkeys(gone)}

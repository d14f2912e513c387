"""Status of a broker: directories, backlogs, clients and recovery result.

State: start time and recovery result, in memory only.
Source: AdminBrokerProcessor#prepareRuntimeInfo, docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.admin.cleaning_service import (
    cleaning_rules,
    expired_count,
    waiting_segments,
)
from rocketpy_broker.services.admin.pages import shown
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions
from rocketpy_broker.store.delay_levels import LEVELS_MAX
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.passes import RecoveryResult
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Role -> path relative to the store's directory.
ROLES: Mapping[str, str] = {
    "commit log": "commitlog",
    "configuration": "config",
    "consume queues": "consumequeue",
    "index": "index",
    "quarantine": "rocketpy/quarantine",
    "staged batches": "rocketpy/staging",
    "store": "",
}
# Counting stops here, since it takes time.
QUARANTINED_COUNTED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class TimerBehind:
    """Messages of the timer that wait to be read: their number, and the age of the oldest."""

    message_count: int
    ms: int


class BrokerStatusService:
    """A reader of the other services' counts."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        topics: TopicConfigManager,
        groups: Groups,
        long_polling: LongPolling,
        delay: Delay,
        transactions: Transactions,
        slaves: SlaveTable,
        slave_state: SlaveState | None,
        broker_id: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._long_polling = long_polling
        self._delay = delay
        self._transactions = transactions
        self._slaves = slaves
        self._slave_state = slave_state
        self._broker_id = broker_id
        self._began_ms = clock.monotonic_ms()
        self._started_ms = clock.now_ms()
        self._recovery: RecoveryResult | None = None
        # Set by the server, which is a higher layer.
        self._count_connections: Callable[[], Awaitable[int]] = _no_connection

    def serves(
        self, recovery: RecoveryResult, count_connections: Callable[[], Awaitable[int]]
    ) -> None:
        """Notes that clients may connect from now on, and sets the start time to now."""
        self._recovery, self._count_connections = recovery, count_connections
        self._began_ms, self._started_ms = self._clock.monotonic_ms(), self._clock.now_ms()

    async def status(self) -> admin_pb2.GetBrokerStatusResponse:
        """Returns the present status; the quarantine is counted up to QUARANTINED_COUNTED_MAX."""
        connection_count = await self._count_connections()
        await take_slot("admin")
        folder = self._store.config.folder
        paths = {role: folder.absolute() / part for role, part in ROLES.items()}
        delay_levels = [*self._delay_levels()]
        disk, clients = os.statvfs(folder), self._groups.clients
        response = admin_pb2.GetBrokerStatusResponse(
            start_timestamp_ms=self._started_ms,
            uptime_ms=int(self._clock.monotonic_ms() - self._began_ms),
            directories=[
                admin_pb2.StoreDirectory(role=role, path=shown(str(path)))
                for role, path in paths.items()
            ],
            disk_bytes=disk.f_blocks * disk.f_frsize,
            # The space for unprivileged programs.
            disk_bytes_free=disk.f_bavail * disk.f_frsize,
            topic_count=len(self._topics),
            consumer_group_count=len(self._groups.configs),
            queue_count=self._store.queue_count,
            client_count=clients.client_count,
            listener_count=clients.listener_count,
            connection_count=connection_count,
            held_call_count=len(self._long_polling.calls),
            delay_level_pending_count=sum(each.pending_count for each in delay_levels),
            timer_pending_count=self._delay.timer.waiting_count,
            half_message_count=self._transactions.listing.open_count,
            quarantined_file_count=_count(paths["quarantine"]),
            waiting_segments=waiting_segments(self._store, manual=False),
            expired_segment_count=expired_count(self._store),
            timer_due_timestamp_ms=self._delay.timer.pending.first_ms(self._clock.now_ms()) or 0,
            delay_levels=delay_levels,
            broker_role=self._slaves.role.value,
            broker_id=self._broker_id,
            slaves=self._slave_statuses(),
            master=self._master_status(),
            cleaning=cleaning_rules(self._store.config.clean_policy, self._clock.now_ms()),
        )
        if (recovery := self._recovery) is not None:
            response.recovered = recovery.abnormal
            response.recovery_damage_count = len(recovery.damages) + len(recovery.in_doubt)
            response.recovery_bytes_dropped = recovery.bytes_dropped
        return response

    def _slave_statuses(self) -> list[admin_pb2.SlaveStatus]:
        return [
            admin_pb2.SlaveStatus(
                address=each.address,
                acknowledged_offset=each.acknowledged,
                lag_bytes=self._slaves.lag_of(each),
                sent_bytes=each.sent_bytes,
                is_in_sync=self._slaves.is_near(each),
            )
            for each in self._slaves.slaves
        ]

    def _master_status(self) -> admin_pb2.MasterStatus | None:
        """Returns a slave's connection to its master; None for a master."""
        state = self._slave_state
        if state is None:
            return None
        return admin_pb2.MasterStatus(
            address=state.master,
            connected=state.is_connected,
            log_end_offset=state.master_end,
            lag_bytes=state.lag_bytes(self._store.positions().log_end),
            synced_timestamp_ms=state.synced_ms,
            failure=shown(state.failure),
        )

    def schedule_offsets(self) -> dict[int, tuple[int, int]]:
        """Returns the next offset and the queue's end of each delay level that was used."""
        progress, range_of = self._delay.progress, self._store.range_of
        offsets = {
            level: (
                progress.next_offset(level),
                range_of(QueueKey(SCHEDULE_TOPIC, level - 1)).max_offset,
            )
            for level in range(1, LEVELS_MAX + 1)
        }
        return {level: each for level, each in offsets.items() if any(each)}

    def _delay_levels(self) -> Iterator[admin_pb2.DelayLevelStatus]:
        """Yields the delay levels with waiting messages."""
        for level, (following, end) in self.schedule_offsets().items():
            if following < end:
                delivery = self._delay.levels[level - 1]
                yield admin_pb2.DelayLevelStatus(
                    level=level,
                    delay_ms=delivery.delay_ms,
                    pending_count=end - following,
                    due_timestamp_ms=delivery.due_ms(following) or 0,
                    next_offset=following,
                )

    def timer_behind(self) -> TimerBehind:
        """Returns the messages with a delivery time that are stored and not read yet."""
        first = self._delay.timer.read_offset
        count = self._store.next_offset(TIMER_QUEUE) - first
        first_ms = self._store.queue_lookup.stored_ms(TIMER_QUEUE, first) if count else None
        age_ms = 0 if first_ms is None else max(self._clock.now_ms() - first_ms, 0)
        return TimerBehind(count, age_ms)


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in islice(folder.iterdir(), QUARANTINED_COUNTED_MAX))
    except OSError:
        # The folder is created with its first file.
        return 0


async def _no_connection() -> int:
    return 0

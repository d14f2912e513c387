"""Status of a broker: directories, backlogs, clients and recovery result.

State: start time and recovery result, in memory only.
Source: AdminBrokerProcessor#prepareRuntimeInfo, docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions
from rocketpy_broker.store.cleaner import SegmentWait
from rocketpy_broker.store.delay_levels import LEVELS_MAX, SCHEDULE_TOPIC
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.passes import RecoveryResult
from rocketpy_broker.store.values import QueueKey

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
class Disk:
    """The disk of a store; `free` is the space for unprivileged programs, all in bytes."""

    size: int
    free: int


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker's status; times in ms, sizes in bytes; `recovery` None: none was reported.

    `directories`: by role. `quarantined_file_count`: up to QUARANTINED_COUNTED_MAX.
    `segment_waits`: reasons why the next cleaning keeps log segments.
    """

    start_timestamp_ms: int
    uptime_ms: int
    directories: Mapping[str, str]
    disk: Disk
    topic_count: int
    consumer_group_count: int
    queue_count: int
    client_count: int
    listener_count: int
    connection_count: int
    held_call_count: int
    delay_level_pending_count: int
    timer_pending_count: int
    half_message_count: int
    recovery: RecoveryResult | None
    quarantined_file_count: int
    segment_waits: list[SegmentWait]


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
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._long_polling = long_polling
        self._delay = delay
        self._transactions = transactions
        self._began_ms = clock.monotonic_ms()
        self._started_ms = clock.now_ms()
        self._recovery: RecoveryResult | None = None
        # Set by the server, which is a higher layer.
        self._count_connections: Callable[[], Awaitable[int]] = _no_connection

    def serves(
        self, recovery: RecoveryResult, count_connections: Callable[[], Awaitable[int]]
    ) -> None:
        """Notes that clients may connect from now on, and resets the start time."""
        self._recovery, self._count_connections = recovery, count_connections
        self._began_ms, self._started_ms = self._clock.monotonic_ms(), self._clock.now_ms()

    async def status(self) -> BrokerStatus:
        """Returns the present status."""
        connection_count = await self._count_connections()
        await take_slot("admin")
        folder = self._store.config.folder
        names = {role: str(folder.absolute() / part) for role, part in ROLES.items()}
        clients = self._groups.clients
        return BrokerStatus(
            self._started_ms,
            int(self._clock.monotonic_ms() - self._began_ms),
            names,
            _disk(folder),
            len(self._topics),
            len(self._groups.configs),
            self._store.queue_count,
            clients.client_count,
            clients.listener_count,
            connection_count,
            len(self._long_polling.calls),
            self._delay_level_pending_count(),
            self._delay.timer.waiting_count,
            self._transactions.listing.open_count,
            self._recovery,
            _count(Path(names["quarantine"])),
            self._store.segment_waits(manual=False),
        )

    def _delay_level_pending_count(self) -> int:
        """Returns the number of undelivered messages in all delay level queues."""
        progress, range_of = self._delay.progress, self._store.range_of
        return sum(
            max(
                range_of(QueueKey(SCHEDULE_TOPIC, level - 1)).max_offset
                - progress.next_offset(level),
                0,
            )
            for level in range(1, LEVELS_MAX + 1)
        )


def _disk(folder: Path) -> Disk:
    found = os.statvfs(folder)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in islice(folder.iterdir(), QUARANTINED_COUNTED_MAX))
    except OSError:
        # The folder is created with its first file.
        return 0


async def _no_connection() -> int:
    return 0

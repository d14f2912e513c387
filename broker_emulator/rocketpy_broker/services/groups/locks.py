"""Locks of queues for ordered consumption: one client per group and queue.

State: the locks, in memory only. A crash loses all locks; clients renew them every 20 seconds.
A call changes the table without an await, so a queue has exactly one owner at any time.
A lock outlives its client, up to `LOCK_MS`. The existence of group, topic and queue is not checked.
Source: RebalanceLockManager, docs/design/broker_behaviour.md section 4.8.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ClientsFullError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.services.groups.clients.members import check_client_id
from rocketpy_broker.services.groups.clients.subscriptions import check_topic
from rocketpy_broker.services.groups.manager import check_group
from rocketpy_broker.store.values import QueueKey

# Any client may take a lock that was not renewed for longer.
LOCK_MS = 60_000


class _LockKey(NamedTuple):
    group: str
    queue: QueueKey


@dataclass(slots=True)
class _Lock:
    client_id: str
    connection: str
    last_update_ms: float


class QueueLocks:
    """Locks by group and queue, the least recently renewed first."""

    def __init__(self, clock: Clock, limits: ClientLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._locks: OrderedDict[_LockKey, _Lock] = OrderedDict()
        self._shares = Shares(limits.locks_per_connection_max)
        # The queues of each group, the least recently renewed first.
        self._by_group: dict[str, OrderedDict[QueueKey, None]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def is_locked(self, group: str) -> bool:
        """True if the group holds a lock that has not expired."""
        queues = self._by_group.get(group)
        if not queues:
            return False
        newest = self._locks[_LockKey(group, next(reversed(queues)))]
        return self._clock.monotonic_ms() - newest.last_update_ms <= LOCK_MS

    def check_count(self, queue_count: int) -> None:
        """Checks the number of queues of a call, before the queues are checked one by one.

        Raises ParameterIllegalError.
        """
        if queue_count > self._limits.queues_per_lock_max:
            accepted = f"{self._limits.queues_per_lock_max} or fewer"
            raise ParameterIllegalError("number of queues", queue_count, accepted)

    def lock(self, group: str, client_id: str, queues: Sequence[QueueKey]) -> list[QueueKey]:
        """Locks or renews queues; returns the queues that the client now owns, each once.

        Raises ParameterIllegalError, ClientsFullError; then nothing has changed.
        """
        self._check(group, client_id, queues)
        wanted = [_LockKey(group, queue) for queue in dict.fromkeys(queues)]
        self._check_space(wanted)
        return [key.queue for key in wanted if self._try_lock(key, client_id)]

    def _check_space(self, wanted: Sequence[_LockKey]) -> None:
        count_max = self._limits.locks_max
        if len(self._locks) + len(wanted) > count_max:
            self.drop_expired(len(wanted))
        new = sum(key not in self._locks for key in wanted)
        if len(self._locks) + new > count_max:
            way_out = "unlock queues, or try again when other locks have expired"
            raise ClientsFullError("the number of queue locks", count_max, way_out)
        if new and not self._shares.has_space(scheduler.connection.get(), new):
            name, count_max = (
                "the number of queue locks of a connection",
                self._shares.connection_max,
            )
            way_out = "unlock queues, or use several connections"
            raise ClientsFullError(name, count_max, way_out)

    def _try_lock(self, key: _LockKey, client_id: str) -> bool:
        now_ms, connection = self._clock.monotonic_ms(), scheduler.connection.get()
        lock = self._locks.get(key)
        if lock is None:
            self._locks[key] = _Lock(client_id, connection, now_ms)
            self._shares.change(connection, 1)
            self._by_group.setdefault(key.group, OrderedDict())[key.queue] = None
            return True
        if lock.client_id != client_id and now_ms - lock.last_update_ms <= LOCK_MS:
            return False
        self._shares.change(lock.connection, -1)
        self._shares.change(connection, 1)
        lock.client_id, lock.connection, lock.last_update_ms = client_id, connection, now_ms
        self._locks.move_to_end(key)
        self._by_group[key.group].move_to_end(key.queue)
        return True

    def unlock(self, group: str, client_id: str, queues: Sequence[QueueKey]) -> None:
        """Releases locks of the client; other locks stay. Raises ParameterIllegalError."""
        self._check(group, client_id, queues)
        for queue in queues:
            key = _LockKey(group, queue)
            lock = self._locks.get(key)
            if lock is not None and lock.client_id == client_id:
                self._drop(key)

    def _drop(self, key: _LockKey) -> None:
        self._shares.change(self._locks.pop(key).connection, -1)
        queues = self._by_group[key.group]
        del queues[key.queue]
        if not queues:
            del self._by_group[key.group]

    def drop_expired(self, count_max: int) -> int:
        """Drops expired locks, at most `count_max`; returns their number."""
        oldest_ms = self._clock.monotonic_ms() - LOCK_MS
        count = 0
        while self._locks and count < count_max:
            key = next(iter(self._locks))
            if self._locks[key].last_update_ms >= oldest_ms:
                break
            self._drop(key)
            count += 1
        return count

    def _check(self, group: str, client_id: str, queues: Sequence[QueueKey]) -> None:
        check_group(group)
        check_client_id(client_id, self._limits)
        self.check_count(len(queues))
        for queue in queues:
            check_topic(queue.topic)
            if queue.queue_id < 0:
                raise ParameterIllegalError("queue_id", queue.queue_id, "0 or more")

"""The HA server of a master: it listens for slaves.

RocketMQ's slaves send no credentials. So the port is off unless an operator gives it. Beyond
loopback it needs --insecure, also on a broker with users.
"""

from __future__ import annotations

import asyncio
import logging

from rocketpy_broker.config import SLAVES_MAX, BrokerConfig
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import ListenAddress, listen
from rocketpy_broker.server.calls.failure_log import ConnectionLog
from rocketpy_broker.server.ha.connection import SlaveConnection
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)
TICK_MS = 1_000


class HaServer:
    """A server for slaves in the running event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        slaves: SlaveTable,
        group_commit: GroupCommit,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._slaves = slaves
        self._clock = clock
        self._log = ConnectionLog(clock)
        self._throttle = LogThrottle(clock)
        self._connections: dict[SlaveConnection, asyncio.Task[None]] = {}
        self._scope: TaskScope | None = None
        self._server: asyncio.Server | None = None
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            group_commit.flushed.add(lambda _ms: self._wake())
        else:
            store.statistics.block_put.add(lambda _put: self._wake())

    async def start(self, scope: TaskScope) -> int:
        """Binds the address, starts serving and returns the port. Raises PortInUseError."""
        self._scope = scope
        address = ListenAddress(self._config.host, self._config.replication.port or 0, "--ha-port")
        self._server, port = await listen(address, self._new_connection)
        scope.start(self._tick())
        return port

    def stop(self) -> None:
        """Closes the port and all connections."""
        if self._server is not None:
            self._server.close()
        for each in [*self._connections]:
            each.close("")

    def _new_connection(self) -> asyncio.Protocol:
        assert self._scope is not None
        if len(self._connections) >= SLAVES_MAX:
            return _Refused(self._log)
        connection = SlaveConnection(
            self._store, self._slaves, self._config.replication, self._clock, self._closed
        )
        self._connections[connection] = self._scope.begin(connection.run())
        return connection

    def _closed(self, connection: SlaveConnection, reason: str) -> None:
        self._connections.pop(connection).cancel()
        if reason:
            self._log.closed(connection.address, reason)
        elif connection.slave is not None and self._throttle.may_log():
            logger.info("slave %s has disconnected", connection.address)

    def _wake(self) -> None:
        for each in self._connections:
            each.wake()

    async def _tick(self) -> None:
        while True:
            await sleep(self._clock, TICK_MS)
            for each in [*self._connections]:
                each.tick()


class _Refused(asyncio.Protocol):
    """A connection beyond the limit of slaves; it is closed at once."""

    def __init__(self, log: ConnectionLog) -> None:
        self._log = log

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Closes the connection."""
        host, port = transport.get_extra_info("peername")[:2]
        self._log.closed(f"{host}:{port}", f"{SLAVES_MAX} slaves are connected, which is the limit")
        transport.close()

"""A broker that is a slave, without its master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rocketpy_broker.config import BrokerRole, Replication
from tests.support.broker.running_broker import RunningBroker, StartBroker

# No program listens there.
MASTER = "127.0.0.1:1"


@asynccontextmanager
async def slave(
    start_broker: StartBroker, broker_id: int = 1, **more: Any
) -> AsyncIterator[RunningBroker]:
    """Starts a slave."""
    replication = Replication(BrokerRole.SLAVE, broker_id, MASTER)
    async with start_broker(
        replication=replication, remoting_port=0, name_server_port=0, **more
    ) as running:
        yield running

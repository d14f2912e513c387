"""A log line about the nearest slave's lag, each minute.

Source: BrokerController#printMasterAndSlaveDiff, docs/design/cluster.md section 4.5.
"""

from __future__ import annotations

import logging

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.services.replication.slaves import SlaveTable

logger = logging.getLogger(__name__)
FIRST_MS, INTERVAL_MS = 10_000, 60_000


class LagReport:
    """The report of one master; `run` is its loop."""

    def __init__(self, slaves: SlaveTable, clock: Clock) -> None:
        self._slaves = slaves
        self._clock = clock

    async def run(self) -> None:
        """Logs the lag while slaves are connected, until cancelled."""
        await sleep(self._clock, FIRST_MS)
        while True:
            lag_bytes = self._slaves.lag_bytes
            if lag_bytes is not None:
                logger.info("the nearest slave lacks %d bytes of the log", lag_bytes)
            await sleep(self._clock, INTERVAL_MS)

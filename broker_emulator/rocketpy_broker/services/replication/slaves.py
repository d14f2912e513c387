"""The slaves of a master, and the log ends that they report.

A slave reports the end of its log after each append. With SYNC_MASTER an acknowledgement waits for
reports. `in_sync_replicas` gives their number plus one, for the master, as in RocketMQ 5. Without
it, the report of one slave is enough, as in RocketMQ 4. A master without a slave near its log's end
then answers at once.
State is in memory only: slaves connect again after a restart.
Source: HAService, GroupTransferService, docs/design/cluster.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.replication.errors import SlaveNotAvailableError, SlaveTimeoutError

# More than any offset of a log.
ALL = 1 << 62


@dataclass(slots=True)
class Slave:
    """A connected slave: its address, the end of its log, and the next offset to send to it.

    `sent_bytes` counts the log's bytes that this connection has sent.
    """

    address: str
    acknowledged: int
    next_offset: int
    sent_bytes: int = 0


class SlaveTable:
    """The connected slaves of one master."""

    def __init__(self, config: Replication, log_end: Callable[[], int]) -> None:
        self._config = config
        self._log_end = log_end
        self._slaves: dict[int, Slave] = {}
        # The number of slaves whose reports an acknowledgement needs.
        self._needed = 0
        if config.role is BrokerRole.SYNC_MASTER:
            self._needed = 1 if config.in_sync_replicas is None else config.in_sync_replicas - 1
        # Called after `confirmed_end` has grown.
        self.progressed = Listeners[[]]()
        self.confirmed_end = ALL if self._needed == 0 else 0

    @property
    def role(self) -> BrokerRole:
        """The role of this master."""
        return self._config.role

    @property
    def slaves(self) -> list[Slave]:
        """The connected slaves, in the order of their connections."""
        return [*self._slaves.values()]

    @property
    def lag_bytes(self) -> int | None:
        """The bytes of the log that no slave has; None without slaves."""
        return min(map(self.lag_of, self._slaves.values()), default=None)

    def lag_of(self, slave: Slave) -> int:
        """Returns the bytes of the log that a slave lacks."""
        return self._log_end() - slave.acknowledged

    def is_near(self, slave: Slave) -> bool:
        """True if a slave is near enough to the log's end to count as in sync."""
        return self.lag_of(slave) < self._config.fall_behind_bytes_max

    def joined(self, slave: Slave) -> None:
        """Adds a slave that has sent its first report."""
        self._slaves[id(slave)] = slave
        self._update()

    def left(self, slave: Slave) -> None:
        """Removes a slave; the parts of the log that it has confirmed stay confirmed."""
        self._slaves.pop(id(slave), None)

    def reported(self, slave: Slave, offset: int) -> None:
        """Notes the end of a slave's log."""
        slave.acknowledged = offset
        self._update()

    def _update(self) -> None:
        if self._needed == 0 or len(self._slaves) < self._needed:
            return
        ends = sorted((each.acknowledged for each in self._slaves.values()), reverse=True)
        if ends[self._needed - 1] > self.confirmed_end:
            self.confirmed_end = ends[self._needed - 1]
            self.progressed()

    # --- Acknowledgements ---

    @property
    def is_waited_for(self) -> bool:
        """True if acknowledgements wait for slaves."""
        return self._needed > 0

    @property
    def needed_count(self) -> int:
        """The number of slaves for which an acknowledgement waits."""
        return self._needed

    @property
    def may_be_missing(self) -> bool:
        """True if an acknowledgement does not wait while no slave is near, as in RocketMQ 4."""
        return self._config.in_sync_replicas is None

    @property
    def timeout_ms(self) -> int:
        """The longest wait for slaves."""
        return self._config.slave_timeout_ms

    def timed_out(self) -> SlaveTimeoutError:
        """Returns the error of a wait that was too long."""
        return SlaveTimeoutError(self._needed, self.timeout_ms)

    def refusal(self) -> SlaveNotAvailableError | None:
        """Returns the error of a block if no slave is near; None if the block must wait."""
        if not self.may_be_missing:
            return None
        lag_bytes, lag_bytes_max = self.lag_bytes, self._config.fall_behind_bytes_max
        if lag_bytes is not None and lag_bytes < lag_bytes_max:
            return None
        return SlaveNotAvailableError(lag_bytes, lag_bytes_max)

"""The state of a slave, for operators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SlaveState:
    """The connection of a slave to its master.

    - `master`: the master's remoting address; empty before it is found.
    - `is_connected`: True while the slave follows its master.
    - `master_end`: the end of the master's log, as the slave last heard of it.
    - `topics_end`: a log offset; the slave has the topics of all messages before it. 0 before the
      first sync.
    - `failure`: the reason for which the slave does not follow its master; empty while it does.
    - `synced_ms`: the time of the last sync of tables, ms since 1970; 0 before the first.
    """

    master: str = ""
    is_connected: bool = False
    master_end: int = 0
    topics_end: int = 0
    failure: str = ""
    synced_ms: int = 0

    def lag_bytes(self, log_end: int) -> int:
        """Returns the bytes of the master's log that are beyond the slave's end."""
        return max(self.master_end - log_end, 0)

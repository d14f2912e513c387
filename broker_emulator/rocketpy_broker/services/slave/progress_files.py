"""Progress of services that only a master runs, in the files of a slave.

A store that was a master's has progress of its own log, which may have been cut. A promotion must
not trust it: without these files it finds in the log what has been delivered, ended and committed.
That takes a reading of the whole log; a crash in between removes the rest at the next start.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy_broker.store.files import durable

# By transactions, exactly-once batches and RocketMQ's timer.
REMOVED = ("transactionLog.json", "batchLedger.journal", "timercheck")
# A start reads deliveries from this log offset on; without the file, it expects none.
DELIVERIES = "deliveryLog.json"
FROM_THE_BEGIN = json.dumps({"logOffset": 0}).encode()


def reset_progress(config_folder: Path) -> None:
    """Makes the next promotion read the log. Blocks. Raises OSError."""
    for name in (*REMOVED, DELIVERIES):
        for path in (config_folder / name, config_folder / f"{name}.bak"):
            if path.exists():
                durable.remove_file(path)
    durable.replace_bytes(config_folder / DELIVERIES, FROM_THE_BEGIN)

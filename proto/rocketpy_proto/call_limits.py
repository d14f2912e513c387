"""What the contract lets a call ask for, as broker.proto states it. No state."""

from __future__ import annotations

# Calls whose work grows with the request: queues or ranges, and how long it may take.
ENTRIES_MAX = 1_000
WORK_MS_MAX = 500
# Keys of one call that are looked up; with more of them whole ranges come back.
KEYS_MAX = 1_000

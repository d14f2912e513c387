"""What the contract lets a call ask for, as broker.proto states it. No state."""

from __future__ import annotations

# Calls whose work grows with the request: queues or ranges, and how long it may take.
ENTRIES_MAX = 1_000
WORK_MS_MAX = 500
# Keys of one call that are looked up; with more of them whole ranges come back. More bytes of keys
# are not sent, so that a call with ENTRIES_MAX ranges stays within what a request may have.
KEYS_MAX, KEYS_BYTES_MAX = 1_000, 256 << 10
# Topics, and known queues, of an offset query, and its bytes.
OFFSET_QUERY_ENTRIES_MAX, OFFSET_QUERY_BYTES_MAX = 32_768, 1 << 20
# Queues of its answer, which has 64 MiB at most then.
OFFSET_QUERY_QUEUES_MAX = 1 << 20
# Stands for a queue id: the broker picks a queue for the block, or each record says its own.
ANY_QUEUE, OWN_QUEUES = -1, -2
# Queues that a block may have records of.
BLOCK_QUEUES_MAX = 100

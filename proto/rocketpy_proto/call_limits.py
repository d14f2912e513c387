"""Limits of gRPC calls, as broker.proto states them."""

from __future__ import annotations

# Limits of calls with work that grows with the request: queues or ranges, and time.
ENTRIES_MAX = 1_000
WORK_MS_MAX = 500
# Keys that one call looks up; with more keys the broker returns whole ranges. The client does not
# send more bytes of keys. So a call with ENTRIES_MAX ranges stays within the request limit.
KEYS_MAX, KEYS_BYTES_MAX = 1_000, 256 << 10
# Topics and known queues of an offset query, and its bytes.
OFFSET_QUERY_ENTRIES_MAX, OFFSET_QUERY_BYTES_MAX = 32_768, 1 << 20
# Queues of its answer, which then has at most 64 MiB.
OFFSET_QUERY_QUEUES_MAX = 1 << 20
# In place of a queue id: the broker picks a queue for the block, or each record has its own.
ANY_QUEUE, OWN_QUEUES = -1, -2
# Queues that the records of one block may belong to.
BLOCK_QUEUES_MAX = 100

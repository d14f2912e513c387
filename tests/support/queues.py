"""Queues of the one broker of endpoints, as in positions."""

from __future__ import annotations

from pyspark_rocketpy.offsets import BrokerQueue


def numbered(queue_id: int) -> BrokerQueue:
    """Returns the queue with this number."""
    return BrokerQueue("", queue_id)


Q0, Q1, Q2 = numbered(0), numbered(1), numbered(2)

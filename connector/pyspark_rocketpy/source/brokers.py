"""Outages of a cluster's brokers during a query, without data loss.

A route without a broker looks the same for a short outage and for a removed broker. So the broker's
queues keep their positions and wait for it. Only the length of the outage can fail the query. The
planner's process keeps the start of each outage, so a restarted query waits again from the start. A
slave may lag the position read from its master; the query waits for it as well. Source:
docs/design/cluster.md section 2.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pyspark_rocketpy.clock import monotonic_ms
from pyspark_rocketpy.errors import ConnectionFailedError, OffsetError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.source.plan.reconcile import Checkpoint

logger = logging.getLogger(__name__)
OUTAGE_OPTION = "brokerUnavailableTimeout"


class BrokerOutages:
    """Start times in ms of the outages of brokers in which the query has positions."""

    def __init__(
        self, timeout_ms: int, *, is_fatal: bool, now: Callable[[], int] = monotonic_ms
    ) -> None:
        self._timeout_ms = timeout_ms
        self._is_fatal = is_fatal
        self._now = now
        self._since_ms: dict[tuple[str, str], int] = {}
        self._reported: set[tuple[str, str]] = set()

    def filled(self, bounds: Bounds, checkpoint: Checkpoint, read: AbstractSet[str]) -> Bounds:
        """Returns the bounds, with bounds for the checkpoint's queues of absent brokers.

        `read` are the topics that the query reads. Raises ConnectionFailedError if a broker has
        been absent for too long.
        """
        absent: set[tuple[str, str]] = set()
        filled = {topic: dict(queues) for topic, queues in bounds.items()}
        begins = checkpoint.listed if checkpoint.begin is None else checkpoint.begin
        for topic in checkpoint.listed.keys() & read:
            present = {queue.broker_name for queue in bounds.get(topic, {})}
            for queue, position in checkpoint.listed[topic].items():
                begin = begins.get(topic, {}).get(queue, position)
                end, there = max(begin, position), filled.get(topic, {}).get(queue)
                if queue.broker_name and queue.broker_name not in present:
                    absent.add((topic, queue.broker_name))
                    away = QueueBounds(begin, end, -1, is_lagging=True)
                    filled.setdefault(topic, {})[queue] = away
                elif there is not None and there.is_lagging:
                    filled[topic][queue] = _caught_up(there, end)
        self._watch(absent)
        return filled

    def _watch(self, absent: set[tuple[str, str]]) -> None:
        now_ms = self._now()
        for gone in self._since_ms.keys() - absent:
            logger.warning("broker %s is back, with topic %s", gone[1], gone[0])
            self._reported.discard(gone)
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in sorted(absent)}
        for each, since_ms in self._since_ms.items():
            if since_ms == now_ms:
                logger.warning("broker %s, with queues of topic %s, is away", each[1], each[0])
            if now_ms - since_ms >= self._timeout_ms and each not in self._reported:
                self._give_up(*each, now_ms - since_ms)

    def _give_up(self, topic: str, broker_name: str, away_ms: int) -> None:
        text = (
            f"broker {broker_name}, which has queues of topic {topic!r}, has been away for "
            f"{away_ms // 1000} s, longer than option {OUTAGE_OPTION} "
            f"({self._timeout_ms // 1000} s)"
        )
        if self._is_fatal:
            raise ConnectionFailedError(
                f"{text}; start it, or set option failOnDataLoss to false to continue without it"
            )
        logger.warning("%s; the query continues without it, and waits for it", text)
        self._reported.add((topic, broker_name))


def _caught_up(queue: QueueBounds, position: int) -> QueueBounds:
    return QueueBounds(
        min(queue.min_offset, position),
        max(queue.max_offset, position),
        queue.committed_offset,
        is_lagging=True,
    )


def with_broker_names(checkpoint: Checkpoint, bounds: Bounds) -> Checkpoint:
    """Returns the checkpoint with the names that the topics' brokers have here.

    Its positions may come from another transport to the same store. Endpoints give brokers no name,
    name servers do. Raises OffsetError if the name is ambiguous.
    """

    def named(positions: Positions) -> Positions:
        return {
            topic: _renamed(topic, queues, {queue.broker_name for queue in bounds.get(topic, {})})
            for topic, queues in positions.items()
        }

    return replace(
        checkpoint,
        listed=named(checkpoint.listed),
        kept=named(checkpoint.kept),
        begin=None if checkpoint.begin is None else named(checkpoint.begin),
    )


def _renamed(
    topic: str, queues: Mapping[BrokerQueue, int], here: set[str]
) -> dict[BrokerQueue, int]:
    names = {queue.broker_name for queue in queues}
    if not here or "" not in names ^ here:
        return dict(queues)
    if len(names) > 1 or len(here) > 1:
        raise OffsetError(
            f"the checkpoint has topic {topic!r} at {_described(names)}, but the query reads it at "
            f"{_described(here)}; read it as before, or start with a new checkpointLocation"
        )
    (name,) = here
    return {BrokerQueue(name, queue.queue_id): offset for queue, offset in queues.items()}


def _described(names: set[str]) -> str:
    if names == {""}:
        return "the one broker of option endpoints"
    return f"brokers {', '.join(sorted(names - {''}))} of option nameServer"

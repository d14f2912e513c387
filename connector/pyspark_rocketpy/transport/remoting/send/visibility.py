"""Visibility of stored messages: brokers acknowledge a message before readers see it.

A broker adds messages to their queues in the order of its log. So all of them show when the last
one in the log does: one request to a broker is enough. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import max_offset
from pyspark_rocketpy.transport.remoting.send.requests import SendResult
from rocketpy_proto.remoting import MessageQueue

logger = logging.getLogger(__name__)

# Most messages show after a few milliseconds; a longer wait than this is logged.
SHOW_MS_MAX = 10_000
PAUSE_MS_FIRST, PAUSE_MS_MAX = 1, 64
# Hexadecimal digits of the log offset, at the end of a message's offset id.
_PLACE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class _Last:
    """A broker's last message in its log, and the offset after it in its queue."""

    place: int
    queue: MessageQueue
    end: int


class Visibility:
    """The messages that one task has stored."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lasts: dict[str, _Last] = {}

    def stored(self, queue: MessageQueue, result: SendResult, count: int) -> None:
        """Records acknowledged messages; not for messages that are delayed at the broker."""
        try:
            place = int(result.msg_ids[-1][-_PLACE_DIGITS:], 16)
        except ValueError:
            # Not a broker's own id: an intermediary has replaced it.
            return
        last = self._lasts.get(queue.broker_name)
        if last is None or place > last.place:
            end = result.queue_offset + count
            self._lasts[queue.broker_name] = _Last(place, queue, end)

    def wait(self) -> None:
        """Waits until everything can be read, SHOW_MS_MAX at most.

        Raises nothing: the messages are stored.
        """
        until_ms = clock.monotonic_ms() + SHOW_MS_MAX
        hidden = [last.queue for last in self._lasts.values() if not self._shows(last, until_ms)]
        if hidden:
            logger.warning(
                "messages are stored, but not yet readable: brokers have not added them to their "
                "queues within %d s: %s",
                SHOW_MS_MAX // 1000,
                ", ".join(f"{queue.broker_name}, topic {queue.topic}" for queue in hidden),
            )

    def _shows(self, last: _Last, until_ms: int) -> bool:
        """True if the message shows in time. A broker that does not answer is not asked again."""
        pause_ms = PAUSE_MS_FIRST
        while True:
            try:
                if max_offset(self._cluster, last.queue).answer() >= last.end:
                    return True
            except (ConnectionFailedError, BrokerError) as error:
                logger.info(
                    "the broker did not answer whether the messages are readable: %s", error
                )
                return True
            if clock.monotonic_ms() >= until_ms:
                return False
            clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

"""Tasks that a receive starts for its messages, with limits.

A task releases messages that the client did not get, or ends unwanted ones. It may continue after
the end of its receive, so its messages count for the connection. Beyond the limits no task starts:
the messages come again at the end of their invisible time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
# Messages of such tasks, in all and of one connection. Each takes about 300 bytes.
MESSAGES_MAX, MESSAGES_OF_CONNECTION = 16_384, 2_048


class LeftWork:
    """The running tasks, by their numbers of messages."""

    def __init__(self, tasks: TaskScope, clock: Clock) -> None:
        self._tasks = tasks
        self._shares = Shares(MESSAGES_OF_CONNECTION, MESSAGES_MAX)
        self._log_throttle = LogThrottle(clock)

    def __len__(self) -> int:
        return self._shares.total

    def begin(self, count: int, work: Coroutine[object, object, None]) -> asyncio.Task[None] | None:
        """Runs work for `count` messages in a task; returns None beyond the limits."""
        connection = scheduler.connection.get()
        if not self._shares.has_space(connection, count):
            work.close()
            if self._log_throttle.may_log():
                logger.warning(
                    "%s of receives will come again only at the end of the invisible time: %s of "
                    "earlier receives wait, limit %d, or %d of one connection",
                    *(counted(count, "message"), counted(self._shares.total, "message")),
                    *(MESSAGES_MAX, MESSAGES_OF_CONNECTION),
                )
            return None
        self._shares.change(connection, count)
        task = self._tasks.begin(work)
        task.add_done_callback(lambda _: self._shares.change(connection, -count))
        return task

"""The promotion of a slave whose master is gone.

An operator decides it: no broker can know whether the other one is dead or only out of reach. The
promotion is on disk before it is answered; the broker then starts again in the same process, as a
master. Its log may lack the old master's last messages. `rocketpy store align` names these messages
and keeps them aside when the old master becomes a slave.
"""

from __future__ import annotations

import asyncio
import logging

from rocketpy_broker.config import BrokerRole
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.slave.waiting_topics import real_queues
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.files.promotion import Promotion, PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.counts import counted
from rocketpy_proto.model import WAITING_TOPICS
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2

logger = logging.getLogger(__name__)
TOPICS_NAMED = 10


class PromotionRefusedError(BrokerError):
    """A broker that cannot become a master now; nothing has changed."""

    code = ResponseCode.INVALID_PARAMETER


class PromotionService:
    """The promotion of one broker; `done` ends when the broker is to start as a master."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        state: SlaveState | None,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._state = state
        self._clock = clock
        self.file = PromotionFile(store.config.folder)
        self.done: asyncio.Future[None] | None = None

    async def promote(self, request: admin_pb2.PromoteRequest) -> admin_pb2.PromoteResponse:
        """Makes a slave a master.

        Raises ParameterIllegalError, PromotionRefusedError, StoreDirectoryError, OSError.
        """
        role = _master_role(request.broker_role)
        state, _ = self._checked(is_forced=request.force)
        await self._create_topics(state.topics_end)
        state, done = self._checked(is_forced=request.force)
        log_end = self._store.positions().log_end
        lag_bytes = state.lag_bytes(log_end)
        epoch = self.file.epoch + 1
        # Clients that have read beyond this log learn that other messages follow.
        self._store.recoveries.promoted(log_end)
        self.file.save(Promotion(role.value, epoch, log_end, self._clock.now_ms()))
        logger.warning(
            "the slave becomes %s: epoch %d, its log ends at %d, and its master's was %d "
            "bytes longer when it was last heard of",
            *(role.value, epoch, log_end, lag_bytes),
        )
        resolve(done)
        return admin_pb2.PromoteResponse(
            epoch=epoch, log_end_offset=log_end, missing_bytes=lag_bytes
        )

    def _checked(self, *, is_forced: bool) -> tuple[SlaveState, asyncio.Future[None]]:
        """Raises PromotionRefusedError for a broker that cannot become a master now."""
        state, done = self._state, self.done
        if state is None or done is None or done.done():
            raise PromotionRefusedError("the broker is a master already")
        if state.is_connected and not is_forced:
            raise PromotionRefusedError(
                f"master {state.master} serves this slave. Two masters would take different "
                "messages: stop the master first, or promote with --force"
            )
        return state, done

    async def _create_topics(self, topics_end: int) -> None:
        """Creates the topics that the master created after the last copy of its tables.

        Their messages are in the log and were acknowledged. Messages from log offset `topics_end`
        on may wait for a delay or a transaction. A topic gets each queue that has messages, or gets
        them later. Raises OSError.
        """
        queue_nums: dict[str, int] = {}
        for queue in [*self._store.queues()]:
            if queue.topic in WAITING_TOPICS:
                its = await real_queues(self._store, queue, topics_end)
            elif self._topics.exists(queue.topic):
                continue
            else:
                bounds = self._store.range_of(queue)
                its = {queue} if bounds.min_offset < bounds.max_offset else set()
            for topic, queue_id in its:
                if not self._topics.exists(topic):
                    queue_nums[topic] = max(queue_nums.get(topic, 0), queue_id + 1)
        found = {
            topic: TopicEntry(TopicConfig(topic, nums, nums)) for topic, nums in queue_nums.items()
        }
        if found:
            logger.warning(
                "%s created, for messages of topics that the master created last: %s",
                counted(len(found), "topic is", "topics are"),
                ", ".join(map(repr, [*found][:TOPICS_NAMED])),
            )
        await self._topics.replicate(found)


def _master_role(name: str) -> BrokerRole:
    """Returns the role of a promoted broker. Raises ParameterIllegalError."""
    masters = {each.value: each for each in BrokerRole if each is not BrokerRole.SLAVE}
    role = masters.get(name or BrokerRole.ASYNC_MASTER.value)
    if role is None:
        raise ParameterIllegalError("broker_role", name[:100], " or ".join(masters))
    return role

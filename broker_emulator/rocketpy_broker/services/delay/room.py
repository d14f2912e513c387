"""Builds the room of delayed messages. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.config_files.saving import Saver, save_now
from rocketpy_broker.services.delay.levels import LevelDelivery
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.delay.releasing import Releasing
from rocketpy_broker.services.delay.scheduling import Scheduling
from rocketpy_broker.services.flushing.room import Flushing
from rocketpy_broker.services.holding.room import Holding
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpointFile
from rocketpy_broker.tasks import TaskScope


@dataclass(frozen=True, slots=True)
class Delay:
    """Messages that wait: into which form they are put, and how far they have been delivered."""

    scheduling: Scheduling
    progress: DeliveryProgress


def build(
    ground: Ground, topics: TopicConfigManager, flushing: Flushing, holding: Holding
) -> Delay:
    """Delayed messages of one broker. They are delivered while it serves."""
    config, clock, store, lifecycle = ground.config, ground.clock, ground.store, ground.lifecycle
    offsets = DelayOffsetManager(config.config_folder, clock)
    progress = DeliveryProgress(config.config_folder, offsets, store)
    releasing = Releasing(store, topics, flushing.group_commit, progress)
    levels = [
        LevelDelivery(level, delay_ms, store, releasing, progress, holding.tasks, clock)
        for level, delay_ms in enumerate(config.delay_levels.delays_ms, 1)
    ]
    checkpoint = TimerCheckpointFile(config.config_folder / "timercheck")

    def load() -> None:
        progress.load()
        checkpoint.load()

    async def start(scope: TaskScope) -> None:
        for level in levels:
            scope.start(level.run())

    def close() -> None:
        # What a failed flush has left is never flushed again.
        if not store.is_sealed:
            plan = store.plan_flush()
            plan.run()
            store.flushed(plan)
        save_now(progress)
        checkpoint.close(store.range_of(TIMER_QUEUE), clock.now_ms())

    lifecycle.loads.append(load)
    lifecycle.starts.append(start)
    lifecycle.tables.append(Saver(progress))
    lifecycle.clean_closes.append(close)
    scheduling = Scheduling(config.delay_levels, clock, config.timer_delay_ms_max)
    return Delay(scheduling, progress)

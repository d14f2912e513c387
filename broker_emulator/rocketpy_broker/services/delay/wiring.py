"""Wiring of delayed messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver, save_now
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.levels import LevelDelivery
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.delay.recall import RecallService
from rocketpy_broker.services.delay.release import DelayRelease
from rocketpy_broker.services.delay.schedule import DelaySchedule, TimerLimits
from rocketpy_broker.services.delay.timer.rocketmq_export import RocketmqExport
from rocketpy_broker.services.delay.timer.service import TimerDelivery
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.delay_levels import LEVELS_MAX, DelayLevels
from rocketpy_broker.store.files.timer_checkpoint import TimerCheckpointFile


@dataclass(frozen=True, slots=True)
class Delay:
    """The parts that store, deliver and recall waiting messages."""

    release: DelayRelease
    schedule: DelaySchedule
    progress: DeliveryProgress
    timer: TimerDelivery
    recall: RecallService
    levels: Sequence[LevelDelivery]


def _delays_ms(levels: DelayLevels) -> list[int]:
    """Returns the delay of each queue of the schedule topic.

    Messages of a removed level may still wait; they get the delay of the last level.
    """
    missing = LEVELS_MAX - levels.level_max
    return [*levels.delays_ms, *[levels.delays_ms[-1]] * missing]


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    flush: FlushServices,
    long_polling: LongPolling,
) -> Delay:
    """Builds the services of delayed messages, which deliver while the broker serves."""
    config, clock, store, lifecycle = (
        context.config,
        context.clock,
        context.store,
        context.master_lifecycle,
    )
    offsets = DelayOffsetManager(config.config_folder, clock)
    progress = DeliveryProgress(config.config_folder, offsets, store)
    release = DelayRelease(store, topics, flush.group_commit, progress, clock)
    levels = [
        LevelDelivery(level, delay_ms, store, release, progress, long_polling.tasks, clock)
        for level, delay_ms in enumerate(_delays_ms(config.delay_levels), 1)
    ]
    is_timed = config.system_topics.timer_wheel_enable
    delay_ms_max = config.timer_delay_ms_max
    timer = TimerDelivery(store, release, progress, long_polling.tasks, clock, delay_ms_max)
    checkpoint = TimerCheckpointFile(config.config_folder / "timercheck")
    export = RocketmqExport(store, timer, progress, checkpoint, clock)

    def load() -> None:
        timer.load(progress.load(checkpoint.load(), is_timed=is_timed))

    async def start(scope: TaskScope) -> None:
        for level in levels:
            scope.start(level.run())
        if is_timed:
            scope.start(timer.run())

    def close() -> None:
        # A store is sealed after a failed flush: its bytes must not be flushed again.
        if not store.is_sealed:
            flush_now(store)
        save_now(progress)
        if is_timed and not store.is_sealed:
            export.run()

    lifecycle.loads.append(load)
    lifecycle.starts.append(start)
    lifecycle.tables.append(Saver(progress))
    lifecycle.clean_closes.append(close)
    pending_max = config.timer_pending_max
    limits = TimerLimits(is_timed, delay_ms_max, pending_max, lambda: timer.waiting_count)
    schedule = DelaySchedule(config.delay_levels, clock, limits, config.commit_log_segment_bytes)
    recall = RecallService(store, topics, flush.group_commit, schedule, config, clock)
    return Delay(release, schedule, progress, timer, recall, levels)

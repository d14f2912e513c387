"""Builds the room of delayed messages. Holds no state."""

from __future__ import annotations

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.config_files.saving import Saver
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpointFile


def build(ground: Ground) -> DelayOffsetManager:
    """What is kept of delayed messages: offsets by level, and the timer's checkpoint."""
    store, lifecycle = ground.store, ground.lifecycle
    manager = DelayOffsetManager(ground.config.config_folder, ground.clock)
    checkpoint = TimerCheckpointFile(ground.config.config_folder / "timercheck")

    def load() -> None:
        manager.load(store.range_of)
        checkpoint.load()

    def close() -> None:
        checkpoint.close(store.range_of(TIMER_QUEUE), ground.clock.now_ms())

    lifecycle.loads.append(load)
    lifecycle.tables.append(Saver(manager))
    lifecycle.clean_closes.append(close)
    return manager

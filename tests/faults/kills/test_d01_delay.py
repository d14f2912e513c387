"""Delayed messages and kill -9 of their broker: none lost, early or twice."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from tests.faults.histories.delayed import DelayedMessages, lateness_ms
from tests.faults.histories.history import FINAL, Outcome
from tests.support.time_limits import WAIT_SECONDS_MAX

QUEUES = 4
# Messages and kills, while the messages are sent and delivered.
QUICK, TORTURE = (2_000, 3), (10_000, 10)
SECONDS_BETWEEN = (0.3, 1.2)
DELIVERED_SECONDS_MAX = WAIT_SECONDS_MAX
# Superfluous deliveries come within this time.
REST_SECONDS = 1.5

torture = (pytest.mark.torture, pytest.mark.timeout(3600))
logger = logging.getLogger(__name__)


@contextlib.contextmanager
def sending(messages: DelayedMessages, count: int) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=messages.send, args=(count,))
    thread.start()
    yield thread
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("size", [QUICK, pytest.param(TORTURE, marks=torture)])
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_d1_delayed_messages_come_once_and_never_early_over_kills(
    ram_folder: Path, tmp_path: Path, seed: int, flush: FlushDiskType, size: tuple[int, int]
) -> None:
    plan = random.Random(seed)
    count, kills = size
    with contextlib.ExitStack() as ending:
        broker = LocalBroker(ram_folder, flush=flush.value)
        ending.callback(broker.kill)
        messages = DelayedMessages(broker, QUEUES)
        messages.start()
        broker.create_topic(messages.topic, QUEUES)
        with sending(messages, count):
            for number in range(kills):
                time.sleep(plan.uniform(*SECONDS_BETWEEN))
                messages.kill()
                messages.start()
                messages.read(f"after kill {number + 1}")
        wait_for_all(messages)
        messages.read(FINAL)
        messages.kill()
    history = messages.history
    history.check(tmp_path, seed)
    outcomes = [send.outcome for send in history.sends.values()]
    assert outcomes.count(Outcome.ACKED) > len(outcomes) / 2, "next to nothing was acknowledged"
    late_ms = sorted(lateness_ms(history))
    logger.info("%d came while nothing hindered", len(late_ms))
    # A busy machine may start the broker so late that all messages were due before.
    if late_ms:
        logger.info("late by %d ms, p99 %d ms", late_ms[-1], late_ms[len(late_ms) * 99 // 100])


def wait_for_all(messages: DelayedMessages) -> None:
    """Waits for all acknowledged messages within their time, then for superfluous ones."""
    acked = [send for send in messages.history.sends.values() if send.outcome is Outcome.ACKED]
    deadline = time.monotonic() + DELIVERED_SECONDS_MAX
    while messages.count() < len(acked) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(REST_SECONDS)

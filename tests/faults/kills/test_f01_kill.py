"""Kill -9 at random moments under load: no acknowledged message is lost."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.clients import (
    LOOK_SECONDS,
    Reader,
    Sender,
    create_topic,
    join_all,
    pull,
    run_all,
)
from tests.faults.histories.history import FINAL, History, Outcome
from tests.faults.histories.recorder import Recorder
from tests.faults.workers.zygote import Zygote
from tests.support.time_limits import WAIT_SECONDS_MAX

KILLS_QUICK = 100
KILLS_TORTURE = 2_000
# The kills of one store; later reads of a whole store take longer.
KILLS_PER_STORE = 50
# Half of the kills of open stores come after up to ACKED_BEFORE_MAX messages, at any speed.
LOAD_SECONDS_MAX, ACKED_BEFORE_MAX = 0.06, 20
# Real brokers: each start costs a second of Python.
BROKER_KILLS_QUICK = 15
BROKER_KILLS_TORTURE = 500
# The kill comes at a random time after up to ACKED_MAX messages of a sender, at any speed.
BROKER_LOAD_SECONDS_MAX = 0.25
ACKED_MAX = 100
BROKER_SEGMENT_BYTES = 1 << 20
SENDERS = 4
QUEUES = 2

pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@pytest.mark.parametrize("kills", [KILLS_QUICK, pytest.param(KILLS_TORTURE, marks=torture)])
def test_f1_a_store_killed_at_random_moments_keeps_what_it_acknowledged(
    zygote: Zygote, ram_folder: Path, tmp_path: Path, seed: int, kills: int
) -> None:
    plan = random.Random(seed)
    for store_number in range(kills // KILLS_PER_STORE):
        folder = ram_folder / str(store_number)
        recorder = Recorder()
        for number in range(KILLS_PER_STORE):
            _load_and_kill(zygote, recorder, folder, plan, f"s{number}")
        recorder.read_all(zygote, folder)
        recorder.history.check(tmp_path, seed)
        assert [event for event in recorder.others if event[0] == "failed"] == []
        assert len(recorder.ends) > KILLS_PER_STORE, "next to nothing was acknowledged"


def _load_and_kill(
    zygote: Zygote, recorder: Recorder, folder: Path, plan: random.Random, name: str
) -> None:
    worker = recorder.load(zygote, folder, plan, name)
    if plan.random() < 0.8:
        worker.expect("open")
        if plan.random() < 0.5:
            wanted = len(recorder.ends) + plan.randint(1, ACKED_BEFORE_MAX)
            for event in worker.events():
                recorder.take_one(event)
                if len(recorder.ends) >= wanted:
                    break
    recorder.take(worker.events(plan.uniform(0, LOAD_SECONDS_MAX)))
    recorder.kill(worker)


@pytest.mark.parametrize(
    "kills", [BROKER_KILLS_QUICK, pytest.param(BROKER_KILLS_TORTURE, marks=torture)]
)
def test_f1_a_broker_killed_under_load_keeps_what_it_acknowledged(
    ram_folder: Path, tmp_path: Path, seed: int, kills: int
) -> None:
    plan = random.Random(seed)
    history = History()
    topics: list[str] = []
    for number in range(kills):
        with started(ram_folder, plan.choice(list(FlushDiskType))) as broker:
            topics.append(f"T{number}")
            create_topic(broker.endpoint, topics[-1], QUEUES)
            _use_until_killed(broker, history, topics[-3:], plan, f"s{number}")
    with (
        started(ram_folder, FlushDiskType.SYNC_FLUSH) as broker,
        grpc.insecure_channel(broker.endpoint) as channel,
    ):
        for queue in [QueueKey(topic, number) for topic in topics for number in range(QUEUES)]:
            pull(channel, history, FINAL, queue)
    history.check(tmp_path, seed)
    acked = sum(send.outcome is Outcome.ACKED for send in history.sends.values())
    assert acked > kills * 10, "next to nothing was acknowledged"


@contextlib.contextmanager
def started(folder: Path, flush: FlushDiskType) -> Iterator[LocalBroker]:
    """Yields a broker that is certainly gone at the end."""
    broker = LocalBroker(folder, flush=flush, commit_log_segment_bytes=BROKER_SEGMENT_BYTES)
    try:
        yield broker.start()
    finally:
        broker.kill()


def _use_until_killed(
    broker: LocalBroker, history: History, topics: list[str], plan: random.Random, name: str
) -> None:
    queues = [QueueKey(topic, number) for topic in topics for number in range(-1, QUEUES)]
    stopped = threading.Event()
    senders = [
        Sender(
            history,
            broker.endpoint,
            f"{name}-{number}",
            queues,
            random.Random(plan.getrandbits(32)),
            stopped,
        )
        for number in range(SENDERS)
    ]
    read = QueueKey(topics[-1], plan.randrange(QUEUES))
    reader = Reader(history, broker.endpoint, f"{name}-reader", read, stopped)
    threads = run_all([*(sender.run for sender in senders), reader.run])
    wanted, deadline = plan.randint(0, ACKED_MAX), time.monotonic() + WAIT_SECONDS_MAX
    while max(sender.acked for sender in senders) < wanted:
        assert time.monotonic() < deadline, "the broker acknowledges no more"
        if stopped.wait(LOOK_SECONDS):
            break
    # The kill comes at a random time, in any state of the broker.
    time.sleep(plan.uniform(0, BROKER_LOAD_SECONDS_MAX))
    if plan.random() < 0.9:
        broker.kill()
    else:
        broker.stop()
    stopped.set()
    join_all(threads)

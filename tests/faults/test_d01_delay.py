"""Row D1: delayed messages over kill -9 of their broker: none lost, none early, none twice."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.client.messages import OutgoingMessage
from rocketpy_broker.client.sending import MessageSender
from rocketpy_broker.store.config import FlushDiskType

TOPIC = "T"
# Messages and kills, while the messages are sent and delivered.
QUICK, TORTURE = (2_000, 3), (10_000, 10)
SENT_TOGETHER = 20
SECONDS_BETWEEN = (0.3, 1.2)
DELIVERED_SECONDS_MAX = 60
LEVEL, DELAY = 1, timedelta(seconds=1)

torture = (pytest.mark.torture, pytest.mark.timeout(3600))


class DelayedSender:
    """Sends while brokers come and go; knows what was acknowledged and what may be stored."""

    def __init__(self, broker: LocalBroker, count: int) -> None:
        self._broker = broker
        self._count = count
        self.acked: set[bytes] = set()
        self.unknown: set[bytes] = set()

    def run(self) -> None:
        """Send all, once each; a send that fails is not made again."""
        for first in range(0, self._count, SENT_TOGETHER):
            bodies = [b"%d" % number for number in range(first, first + SENT_TOGETHER)]
            messages = [OutgoingMessage(body, delay_level=LEVEL) for body in bodies]
            try:
                with BrokerConnection(self._broker.endpoint) as connection:
                    sender = MessageSender(connection, TOPIC, turn=first // SENT_TOGETHER % 4)
                    list(sender.send(messages))
                self.acked.update(bodies)
            except ClientError:
                self.unknown.update(bodies)
                # A start takes a second or two; not all is to be sent to nobody.
                time.sleep(0.3)
            # Sending takes as long as the kills do.
            time.sleep(0.01)


@contextlib.contextmanager
def sending(sender: DelayedSender) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=sender.run)
    thread.start()
    yield thread
    thread.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [QUICK, pytest.param(TORTURE, marks=torture)])
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_d1_delayed_messages_come_once_and_never_early_over_kills(
    ram_folder: Path, seed: int, flush: FlushDiskType, size: tuple[int, int]
) -> None:
    plan = random.Random(seed)
    count, kills = size
    with contextlib.ExitStack() as ending:
        broker = LocalBroker(ram_folder, flush=flush.value)
        ending.callback(broker.kill)
        broker.start()
        broker.create_topic(TOPIC, 4)
        sender = DelayedSender(broker, count)
        with sending(sender):
            for _ in range(kills):
                time.sleep(plan.uniform(*SECONDS_BETWEEN))
                broker.kill()
                broker.start()
        found = delivered(broker, len(sender.acked))
        check(sender, found, broker)


def delivered(broker: LocalBroker, count: int) -> Counter[bytes]:
    """Wait until so many are there, and for what may come too much."""
    deadline = time.monotonic() + DELIVERED_SECONDS_MAX
    while len(found := bodies(broker)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        time.sleep(0.1)
    time.sleep(1.5)
    return bodies(broker)


def bodies(broker: LocalBroker) -> Counter[bytes]:
    return Counter(message.body for message in broker.messages(TOPIC))


def check(sender: DelayedSender, found: Counter[bytes], broker: LocalBroker) -> None:
    assert sender.acked - found.keys() == set()
    assert found.keys() - sender.acked - sender.unknown == set()
    assert [body for body, times in found.items() if times > 1] == []
    early = [
        message.body
        for message in broker.messages(TOPIC)
        if message.store_timestamp - message.born_timestamp < DELAY
    ]
    assert early == []
    assert len(sender.acked) > len(sender.unknown), "next to nothing was acknowledged"

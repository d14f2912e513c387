"""H04: masters die under load and their slaves take over; no acknowledged message is lost."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.client import brokers
from rocketpy_broker.errors import BrokerError
from tests.broker.replication.promotion.test_h04_promotion import until
from tests.support.time_limits import WAIT_SECONDS_MAX

QUICK, TORTURE = 2, 2_000
TOPIC = "T"
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@dataclass
class Sender:
    """A thread that sends numbers, each until it is acknowledged."""

    broker: LocalBroker
    acknowledged: set[int] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            try:
                self.broker.send(TOPIC, b"%d" % number)
            except BrokerError:
                self._stopped.wait(0.05)
            else:
                self.acknowledged.add(number)
                number += 1

    def until(self, count: int) -> None:
        """Waits for this number of further acknowledgements."""
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def follower(folder: Path, master: LocalBroker) -> LocalBroker:
    """Returns a slave of `master`, which may become one itself."""
    address = master.remoting_endpoint
    return LocalBroker(folder, ha_port=0, flush="SYNC_FLUSH", broker_role="SLAVE", master=address)


def promote(slave: LocalBroker) -> None:
    with slave._connection() as connection:
        brokers.promote(connection, role="SYNC_MASTER", force=True)
        assert brokers.await_master(connection, WAIT_SECONDS_MAX)


def align(folder: Path, master: LocalBroker) -> dict[str, int]:
    """Aligns a store; returns the numbers of messages that are removed, by topic."""
    words = ["store", "align", str(folder), "--master", master.remoting_endpoint, "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    removed: dict[str, int] = json.loads(done.stdout)["removed"]
    return removed


def numbers(broker: LocalBroker) -> list[int]:
    return [int(bytes(each.body)) for each in broker.messages(TOPIC)]


@pytest.mark.parametrize("count", [QUICK, pytest.param(TORTURE, marks=torture)])
def test_h04_no_acknowledged_message_is_lost_when_masters_die(tmp_path: Path, count: int) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    chance = random.Random(count)
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(
            LocalBroker(
                folders[0],
                ha_port=0,
                flush="SYNC_FLUSH",
                broker_role="SYNC_MASTER",
                in_sync_replicas=2,
            )
        )
        slave = stack.enter_context(follower(folders[1], master))
        master.create_topic(TOPIC, queues=1)
        # A slave copies the topics every ten seconds.
        until(lambda: TOPIC in slave.topics())
        sender = Sender(master)
        stack.callback(sender.stop)
        for _ in range(count):
            sender.until(chance.randrange(1, 30))
            master.kill()
            promote(slave)
            sender.broker = slave
            align(master.data, slave)
            master, slave = slave, stack.enter_context(follower(master.data, slave))
        sender.until(1)
        sender.stop()
        assert sender.acknowledged <= set(numbers(master))

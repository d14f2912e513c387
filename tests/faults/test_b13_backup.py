"""Backups of a store in use: each has all earlier acknowledged messages, once."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.backup.target import BackupTarget
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.faults.disks.small_disk import mounted_disk
from tests.faults.histories.clients import BatchClient, join_all, run_all
from tests.support.broker.shell import run, started
from tests.support.time_limits import WAIT_SECONDS_MAX

QUEUES = 2
SEGMENT_BYTES = 1 << 20
TASKS = 3
# The messages that are acknowledged before each backup; the plain ones fill two segments.
BEFORE = {"plain": 10, "delayed": 5, "transaction": 5, "batch": 5}
PLAIN_BYTES = 200_000
# Of each client: backups and checks of much more take long, and find no more.
PAUSE_SECONDS = 0.01
DELIVERY_SECONDS_MAX = WAIT_SECONDS_MAX
BACKUPS = 3
MANY_MEGABYTES = 40
DELAY_LEVEL = 1

# Bodies by kind, in batches of all or none.
Acked = dict[str, list[tuple[str, ...]]]

pytestmark = pytest.mark.slow


@dataclass
class Clients:
    """All clients of a broker; see Acked."""

    endpoint: str
    acked: Acked = field(default_factory=dict)
    begun: list[tuple[str, ...]] = field(default_factory=list)
    rolled_back: set[str] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _ack(self, kind: str, *names: str) -> None:
        with self._lock:
            self.acked.setdefault(kind, []).append(names)

    def acked_now(self) -> Acked:
        with self._lock:
            return {kind: list(names) for kind, names in self.acked.items()}

    def acked_soon(self) -> Acked:
        """Returns what is acknowledged when each kind has grown by its number in BEFORE."""
        begun = self.acked_now()
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            acked = self.acked_now()
            grown = {kind: len(acked.get(kind, ())) - len(begun.get(kind, ())) for kind in BEFORE}
            if all(grown[kind] >= count for kind, count in BEFORE.items()):
                return acked
            assert time.monotonic() < deadline, f"a client has done next to nothing: {grown}"
            time.sleep(0.02)

    def _repeat(self, step: Callable[[BrokerConnection, int], None]) -> Callable[[], None]:
        def work() -> None:
            with BrokerConnection(self.endpoint) as connection:
                number = 0
                while not self.stopped.is_set():
                    step(connection, number)
                    number += 1
                    self.stopped.wait(PAUSE_SECONDS)

        return work

    def threads(self, broker: LocalBroker) -> list[threading.Thread]:
        def write(_: BrokerConnection, number: int) -> None:
            name = f"plain-{number}"
            broker.send("Plain", name.encode().ljust(PLAIN_BYTES), keys=name)
            self._ack("plain", name)

        def delay(_: BrokerConnection, number: int) -> None:
            name = f"delayed-{number}"
            broker.send("Delayed", name, delay_level=DELAY_LEVEL)
            self._ack("delayed", name)

        def consume(_: BrokerConnection, _number: int) -> None:
            broker.pull("Plain", "readers", 10)

        def transact(connection: BrokerConnection, number: int) -> None:
            name = f"transaction-{number}"
            message = OutgoingMessage(name.encode())
            begun = transactions.prepare(connection, "Transactions", "producers", message)
            is_to_commit = number % 3 > 0
            if not is_to_commit:
                self.rolled_back.add(name)
            transactions.end(connection, begun, commit=is_to_commit)
            if is_to_commit:
                self._ack("transaction", name)

        steps = (write, delay, consume, transact, self._batch)
        return run_all([self._repeat(step) for step in steps])

    def _batch(self, connection: BrokerConnection, number: int) -> None:
        job = broker_pb2.BatchJob(writer_id="a query", batch_id=number, job_token=number + 1)
        client = BatchClient(job)
        names = tuple(f"batch-{number}-{task}-{n}" for task in range(TASKS) for n in range(50))
        self.begun.append(names)
        size = len(names) // TASKS
        for task in range(TASKS):
            bodies = [name.encode() for name in names[task * size : (task + 1) * size]]
            client.stage(connection.broker, [(QueueKey("Batches", task % QUEUES), bodies)])
        answer = connection.broker.CommitBatch(client.commit_request(), timeout=WAIT_SECONDS_MAX)
        assert answer.status.code == 0, answer.status.remark
        assert answer.outcome == broker_pb2.COMMITTED
        self._ack("batch", *names)


TOPICS = {
    "plain": "Plain",
    "delayed": "Delayed",
    "transaction": "Transactions",
    "batch": "Batches",
}
TYPES = {"Delayed": "DELAY", "Transactions": "TRANSACTION"}


@contextlib.contextmanager
def broker_on(folder: Path) -> Iterator[LocalBroker]:
    broker = LocalBroker(folder, commit_log_segment_bytes=SEGMENT_BYTES)
    try:
        yield broker.start()
    finally:
        broker.kill()


def names_in(broker: LocalBroker, kind: str) -> Counter[str]:
    messages = broker.messages(TOPICS[kind])
    return Counter(message.body.decode().strip() for message in messages)


def check_copies(copies: list[Path], clients: Clients, acked: list[Acked]) -> None:
    """Starts from each copy; asserts that all earlier acknowledged messages are there, once."""
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(broker_on(copy)) for copy in copies]
        deadline = time.monotonic() + DELIVERY_SECONDS_MAX
        for broker, before in zip(brokers, acked, strict=True):
            delayed = {name for names in before["delayed"] for name in names}
            while not delayed <= names_in(broker, "delayed").keys():
                assert time.monotonic() < deadline, "a delayed message is lost"
                time.sleep(0.1)
        # Superfluous deliveries come within this time.
        time.sleep(1.5)
        for broker, before in zip(brokers, acked, strict=True):
            check_messages(broker, clients, before)
            assert "ERROR" not in broker.log_text(), broker.log_text()
            broker.stop()
    for copy in copies:
        checked = CliRunner().invoke(app, ["store", "check", str(copy)])
        assert checked.exit_code == 0, checked.output


def check_messages(broker: LocalBroker, clients: Clients, acked: Acked) -> None:
    for kind in TOPICS:
        found = names_in(broker, kind)
        wanted = {name for names in acked[kind] for name in names}
        assert wanted <= found.keys(), f"{kind}: {sorted(wanted - found.keys())[:5]} are lost"
        twice = [name for name, count in found.items() if count > 1]
        assert not twice, f"{kind}: {twice[:5]} came twice"
        assert not clients.rolled_back & found.keys()
    batches = names_in(broker, "batch").keys()
    for names in clients.begun:
        assert len(batches & set(names)) in {0, len(names)}, "half of a batch"
    # The copy's broker takes messages, too.
    broker.send("Plain", "new")
    assert broker.messages("Plain")[-1].queue_offset >= 0


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_b13_a_backup_while_clients_work_has_all_that_was_acknowledged_before_once(
    ram_folder: Path, flush: str
) -> None:
    broker = LocalBroker(ram_folder / "store", flush=flush, commit_log_segment_bytes=SEGMENT_BYTES)
    with broker:
        for topic in TOPICS.values():
            kind = {"message.type": TYPES.get(topic, "NORMAL")}
            broker.create_topic(topic, QUEUES, attributes=kind)
        clients = Clients(broker.endpoint)
        threads = clients.threads(broker)
        acked = []
        for number in range(BACKUPS):
            acked.append(clients.acked_soon())
            done = run(broker, "store", "backup", str(ram_folder / f"copy{number}"))
            assert done.exit_code == 0, done.output
        clients.stopped.set()
        join_all(threads)
    check_copies([ram_folder / f"copy{number}" for number in range(BACKUPS)], clients, acked)


@contextlib.contextmanager
def broker_with_much(folder: Path) -> Iterator[LocalBroker]:
    """Yields a broker with MANY_MEGABYTES of messages: a backup takes a while."""
    with broker_on(folder) as broker:
        broker.create_topic("T", 1, exist_ok=True)
        for _ in range(MANY_MEGABYTES - len(broker.messages("T"))):
            broker.send("T", bytes(range(256)) * 4000)
        yield broker


def harmed(broker: LocalBroker, copy: Path, harm: Callable[[subprocess.Popen[str]], None]) -> str:
    """Runs `harm` while a backup copies the log; returns its output, "" if it was done before."""
    words = ["store", "backup", str(copy), "--endpoint", broker.endpoint]
    with started(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as backup:
        unfinished = copy.with_name("copy.unfinished")
        while not list(unfinished.glob("commitlog/*")) and backup.poll() is None:
            time.sleep(0.001)
        harm(backup)
        told, _ = backup.communicate()
    if backup.returncode == 0 or copy.exists():
        # A busy machine may let the test look too late: a copy that is there is whole.
        checked = CliRunner().invoke(app, ["store", "check", str(copy)])
        assert checked.exit_code == 0, checked.output
        shutil.rmtree(copy)
        return ""
    return told or "nothing"


def test_b13_a_backup_that_is_killed_leaves_no_copy_and_the_next_one_takes_its_place(
    ram_folder: Path,
) -> None:
    copy, unfinished = ram_folder / "copy", ram_folder / "copy.unfinished"
    with broker_with_much(ram_folder / "store") as broker:
        for number in (signal.SIGINT, signal.SIGKILL):
            while not harmed(broker, copy, methodcaller("send_signal", number)):
                pass
            # The next backup removes the rest of a killed one.
            assert unfinished.exists() == (number is signal.SIGKILL)
        broker.send("T", "more")
        done = run(broker, "store", "backup", str(copy))
        assert done.exit_code == 0, done.output
        assert not unfinished.exists()
        messages = broker.messages("T")
    with broker_on(copy) as again:
        assert [one.body for one in again.messages("T")] == [one.body for one in messages]


def _kill(broker: LocalBroker, _backup: subprocess.Popen[str]) -> None:
    broker.kill()


def test_b13_a_broker_that_is_killed_in_the_middle_leaves_no_copy(ram_folder: Path) -> None:
    told = ""
    while not told:
        with broker_with_much(ram_folder / "store") as broker:
            told = harmed(broker, ram_folder / "copy", partial(_kill, broker))
    assert told.startswith("rocketpy: "), told
    assert not (ram_folder / "copy.unfinished").exists()


def test_b13_a_disk_that_fills_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with BackupTarget(folder) as target:
            target.begin(1)
            for number in range(32):
                target.write(Piece(f"commitlog/{number}", 0, b"x" * (1 << 20), 1 << 20, 1))

    with mounted_disk(tmp_path / "disk", 8 << 20) as disk:
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "copy")
        assert list(disk.iterdir()) == []


def test_b13_a_disk_without_room_is_told_before_anything_is_copied(
    tmp_path: Path, ram_folder: Path
) -> None:
    with mounted_disk(tmp_path / "disk", 8 << 20) as disk, broker_on(ram_folder) as broker:
        broker.create_topic("T", 1)
        for _ in range(10):
            broker.send("T", bytes(range(256)) * 4000)
        done = run(broker, "store", "backup", str(disk / "copy"))
        assert done.exit_code == 1
        assert "the backup takes about" in done.output
        assert "Free space" in done.output
        assert list(disk.iterdir()) == []

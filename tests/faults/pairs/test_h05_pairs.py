"""H05: a master's and a slave's processes under faults of link, processes, clocks and disks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.brokers import broker_status
from rocketpy_broker.client.statistics import store_counters
from rocketpy_broker.embedded.process import LocalBrokerError
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.replication.promotion.test_h04_promotion import until
from tests.faults.disks.loop_disk import LOG_FLUSH, NO_LOG_FLUSH, LoopDisk, opened
from tests.faults.disks.test_f07_full_services import fill
from tests.faults.pairs.test_h04_failovers import align, follower, numbers, promote
from tests.support.broker.relay import HOST, Relay

ROUNDS_TORTURE = 40
TOPIC = "T"
SEGMENT_BYTES = 1 << 20
PAUSE_SECONDS, HELD_SECONDS_MAX = 0.1, 0.5
PADDING_BYTES = 100_000
SLOW_BYTES = (2_000, 20_000, 200_000)
JUMPS_MS = (-86_400_000, -5_000, 5_000, 86_400_000)
# Words of an answer to a message that the master has stored.
UNCONFIRMED = ("no slave is connected", "not confirmed by 1 slave within 3000 ms")
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@dataclass
class Sender:
    """A thread that sends one number after the other, each once."""

    broker: LocalBroker
    acknowledged: list[int] = field(default_factory=list)
    unconfirmed: list[int] = field(default_factory=list)
    # The master does not answer, or refuses: the number may be stored.
    unknown: list[int] = field(default_factory=list)
    number: int = 0
    padding_bytes: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            try:
                self.broker.send(TOPIC, b"%d" % self.number + b" " * self.padding_bytes)
            except LocalBrokerError as error:
                is_stored = any(words in str(error) for words in UNCONFIRMED)
                (self.unconfirmed if is_stored else self.unknown).append(self.number)
            else:
                self.acknowledged.append(self.number)
            self.number += 1

    def until_answers(self, count: int) -> list[int]:
        """Waits for answers to this number of messages that are sent from now on."""
        first = self.number + 1
        until(lambda: self.number >= first + count)
        return [*range(first, first + count)]

    def until_acknowledged(self) -> None:
        """Waits for the next acknowledgement."""
        count = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > count)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@dataclass
class Scene:
    """The two brokers, the link between them, and the sender."""

    chance: random.Random
    master: LocalBroker
    slave: LocalBroker
    relay: Relay
    sender: Sender
    disks: tuple[LoopDisk, LoopDisk] | None = None

    @property
    def both(self) -> list[LocalBroker]:
        return self.chance.sample([self.master, self.slave], 2)

    # --- Faults ---

    def cut_link(self) -> None:
        goal = self.relay.cuts + 1
        # Small messages would take minutes to reach a cut after many bytes.
        self.sender.padding_bytes = PADDING_BYTES
        self.relay.cut_often(self.chance)
        until(lambda: self.relay.cuts >= goal)
        self.sender.padding_bytes = 0
        self.relay.cut()
        self.check_unconfirmed()

    def slow_link(self) -> None:
        self.relay.bytes_per_second = self.chance.choice(SLOW_BYTES)
        self.sender.until_answers(3)

    def hold_link(self) -> None:
        self.relay.hold()
        self.check_unconfirmed()

    def freeze_slave(self) -> None:
        with frozen(self.slave):
            self.check_unconfirmed()

    def freeze_master(self) -> None:
        with frozen(self.master):
            self.sender._stopped.wait(self.chance.uniform(0, HELD_SECONDS_MAX))

    def kill_slave(self) -> None:
        self._end(self.slave)
        self.check_unconfirmed()
        self.slave.start()

    def kill_master(self) -> None:
        self._end(self.master)
        self.master.start()

    def kill_both(self) -> None:
        for broker in self.both:
            self._end(broker)
        for broker in self.both:
            broker.start()

    def _end(self, broker: LocalBroker) -> None:
        self.chance.choice([broker.kill, broker.kill, broker.stop])()

    def jump_clock(self) -> None:
        broker, jump_ms = self.both[0], self.chance.choice(JUMPS_MS)
        if jump_ms > 0:
            broker.advance_clock(jump_ms / 1_000)
        else:
            # A clock is set back at a start alone.
            broker.kill()
            broker._clock_ahead_ms += jump_ms
            broker.start()
        self.sender.until_answers(2)

    def cut_power(self) -> None:
        assert self.disks is not None
        for disk in self.chance.sample(self.disks, 2):
            disk.cut(self.chance.choice([LOG_FLUSH, NO_LOG_FLUSH]))
        for broker in self.both:
            broker.kill()
        for disk in self.disks:
            disk.power_on()
        for broker in self.both:
            broker.start()

    def fill_masters_disk(self) -> None:
        unknown = len(self.sender.unknown)
        with self._filled(0):
            until(lambda: len(self.sender.unknown) > unknown)

    def fill_slaves_disk(self) -> None:
        with self._filled(1):
            until(lambda: "No space left" in status(self.slave).master.failure)

    @contextlib.contextmanager
    def _filled(self, side: int) -> Iterator[None]:
        """Fills a disk, and sends larger messages meanwhile."""
        assert self.disks is not None
        ballast = self.disks[side].mount_point / "ballast"
        fill(ballast, 0)
        self.sender.padding_bytes = PADDING_BYTES
        try:
            yield
        finally:
            self.sender.padding_bytes = 0
            ballast.unlink()

    def check_unconfirmed(self) -> None:
        """Asserts the answers while no slave can confirm a message."""
        numbers = self.sender.until_answers(1)
        is_sync = self.master._role.value == "SYNC_MASTER"
        found = self.sender.unconfirmed if is_sync else self.sender.acknowledged
        assert {*numbers} <= {*found}, self.sender

    # --- Judgement ---

    def check_slave(self) -> None:
        """Asserts what a promotion would find now."""
        acknowledged, copied = {*self.sender.acknowledged}, numbers(self.slave)
        if self.master._role.value == "SYNC_MASTER":
            assert acknowledged <= {*copied}, sorted(acknowledged - {*copied})
        assert numbers(self.master)[: len(copied)] == copied

    def follow(self) -> None:
        """Waits until the slave has all that its master has in its log now."""
        self.relay.heal()
        end = counters(self.master).log_end_offset
        until(lambda: counters(self.slave).log_end_offset >= end)

    def check_end(self) -> None:
        """Asserts that no message is lost or doubled, and that the logs are equal."""
        self.sender.stop()
        self.follow()
        sender, found = self.sender, numbers(self.master)
        assert found == sorted({*found})
        stored = {*sender.acknowledged, *sender.unconfirmed}
        assert stored <= {*found} <= stored | {*sender.unknown}
        assert numbers(self.slave) == found
        assert log_of(self.slave) == log_of(self.master)

    def fail_over(self) -> None:
        """Asserts that a promotion loses a suffix, and that it is named."""
        self.relay.hold()
        following = range(self.sender.number, self.sender.number + 3)
        with contextlib.suppress(LocalBrokerError):
            self.master.send(TOPIC, [b"%d" % number for number in following])
        sent = numbers(self.master)
        self.master.kill()
        promote(self.slave)
        kept = numbers(self.slave)
        assert kept == sent[:-3]
        assert align(self.master.data, self.slave) == {TOPIC: 3}
        with follower(self.master.data, self.slave) as old:
            until(lambda: numbers(old) == kept)


FAULTS = (
    *(Scene.cut_link, Scene.slow_link, Scene.hold_link, Scene.freeze_slave, Scene.freeze_master),
    *(Scene.kill_slave, Scene.kill_master, Scene.kill_both, Scene.jump_clock),
)
OF_DISKS = (Scene.cut_power, Scene.fill_masters_disk, Scene.fill_slaves_disk)


@contextlib.contextmanager
def frozen(broker: LocalBroker) -> Iterator[None]:
    """Stops a process for a while: its connections stay open, and nothing answers."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2][1] == "T")
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def status(broker: LocalBroker) -> admin_pb2.GetBrokerStatusResponse:
    with broker._connection() as connection:
        return broker_status(connection)


def counters(broker: LocalBroker) -> admin_pb2.GetStoreStatisticsResponse:
    with broker._connection() as connection:
        return store_counters(connection)


def log_of(broker: LocalBroker) -> bytes:
    """Returns the log's files up to the log's end."""
    content = b"".join(path.read_bytes() for path in sorted((broker.data / "commitlog").iterdir()))
    found = counters(broker)
    return content[: found.log_end_offset - found.log_begin_offset]


@contextlib.contextmanager
def scene(folders: tuple[Path, Path], role: str, seed: int) -> Iterator[Scene]:
    """Yields a pair with a link between, and a sender."""
    with contextlib.ExitStack() as stack:
        master = LocalBroker(
            folders[0],
            ha_port=0,
            flush="SYNC_FLUSH",
            broker_role=role,
            commit_log_segment_bytes=SEGMENT_BYTES,
        )
        stack.enter_context(master)
        port = int(master.remoting_endpoint.rpartition(":")[2])
        relay = stack.enter_context(Relay(port, master._ha_port))
        slave = LocalBroker(
            folders[1],
            ha_port=0,
            flush="SYNC_FLUSH",
            broker_role="SLAVE",
            master=f"{HOST}:{port}",
            commit_log_segment_bytes=SEGMENT_BYTES,
        )
        stack.enter_context(slave)
        master.create_topic(TOPIC, queues=1)
        # A slave copies the topics every ten seconds.
        until(lambda: TOPIC in slave.topics())
        sender = Sender(master)
        stack.callback(sender.stop)
        sender.until_acknowledged()
        yield Scene(random.Random(seed), master, slave, relay, sender)


def chosen(
    faults: tuple[Callable[[Scene], None], ...], seed: int, rounds: int | None
) -> list[Callable[[Scene], None]]:
    """Returns each fault once, or `rounds` of them, in a random order."""
    chance = random.Random(seed)
    found = list(faults)
    chance.shuffle(found)
    return found if rounds is None else chance.choices(faults, k=rounds)


@pytest.mark.parametrize("rounds", [None, pytest.param(ROUNDS_TORTURE, marks=torture)])
@pytest.mark.parametrize("role", ROLES)
def test_h05_no_fault_of_link_process_or_clock_costs_a_message(
    tmp_path: Path, seed: int, role: str, rounds: int | None
) -> None:
    with scene((tmp_path / "a", tmp_path / "b"), role, seed) as found:
        for fault in chosen(FAULTS, seed, rounds):
            fault(found)
            found.check_slave()
            found.follow()
            found.sender.until_acknowledged()
        found.check_end()
        found.fail_over()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[LoopDisk, LoopDisk]]:
    """Yields two disks whose power can be cut."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    with opened(folders[0]) as first, opened(folders[1]) as second:
        yield first, second


@pytest.mark.parametrize("role", ROLES)
def test_h05_no_full_disk_or_power_cut_of_both_costs_a_message(
    disks: tuple[LoopDisk, LoopDisk], seed: int, role: str
) -> None:
    folders = disks[0].mount_point / "store", disks[1].mount_point / "store"
    with scene(folders, role, seed) as found:
        found.disks = disks
        for fault in chosen(OF_DISKS, seed, None):
            fault(found)
            found.check_slave()
            found.follow()
            found.sender.until_acknowledged()
        found.check_end()

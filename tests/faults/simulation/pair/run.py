"""One seed of a pair: a master and its slave, their clients, their faults and their operator."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.configs import TopicConfig
from tests.faults.simulation.pair.clients import GROUP, Clients
from tests.faults.simulation.pair.judge import Verdict
from tests.faults.simulation.pair.log import RawLog
from tests.faults.simulation.pair.operator import Operator, Way
from tests.faults.simulation.pair.sides import HA_PORT, Plan, Side, Sides, as_slave_of
from tests.faults.simulation.producers import QUEUES, TOPIC

GAPS_MS = (0, 0, 1, 30, 400, 2_000, 8_000, 30_000)
STEPS = (15, 40, 80)
JUMPS_MS = (-30_000, -2_000, 5_000, 40_000)
LINKS_MS = ((0,), (0, 1, 3), (20, 200), (0, 3_000))
# The longest delay, and two syncs of the slave's tables.
DELAY_MS, SYNCS_MS = 70_000, 25_000


class PairSimulation:
    """A run that follows from a seed; `faults` are its broken promises."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.sides = sides = Sides(folder, chance)
        self.clients = Clients(sides)
        self.operator = Operator(sides, self.clients)
        is_sync = chance.random() < 0.6
        replication = Replication(
            role=BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER,
            port=HA_PORT,
            in_sync_replicas=chance.choice([None, 2, 2]) if is_sync else None,
            batch_bytes=chance.choice([100, 5_000, 256 << 10]),
        )
        sides.a.replication = replication
        sides.b.replication = as_slave_of(sides.a, replication)
        self.faults: list[str] = []
        self._late_ms = 0
        self._steps = self._chosen_steps()

    def _chosen_steps(self) -> list[Callable[[], object]]:
        chance, sides, clients = self.chance, self.sides, self.clients
        steps: list[tuple[Callable[[], object], tuple[int, ...]]] = [
            (lambda: sides.spawn(clients.send(self._master, is_delayed=False)), (8,)),
            (lambda: sides.spawn(clients.send(self._master, is_delayed=True)), (0, 3)),
            (
                lambda: sides.spawn(clients.send(self._master, is_delayed=False, is_large=True)),
                (0, 3),
            ),
            (lambda: sides.spawn(clients.read(self._master)), (3,)),
            (lambda: sides.spawn(clients.read(self.operator.slave)), (3,)),
            (lambda: sides.spawn(clients.change_topics(self._master)), (0, 2)),
            (self._crash, (0, 1, 2)),
            (self._crash_later, (0, 1, 2)),
            (self._restart, (5,)),
            (self._stop, (0, 1)),
            (self._cut, (0, 1)),
            (self._slow, (0, 1)),
            (self._freeze, (0, 1)),
            (sides.heal, (3,)),
            (self._jump, (0, 0, 0, 1)),
            (self._fill, (0, 0, 1)),
            (self._fail_flush, (0, 0, 0, 1)),
            (self._fail_over, (0, 1, 2, 3)),
            (self._bring_slave, (3,)),
        ]
        return [step for step, weights in steps for _ in range(chance.choice(weights))]

    @property
    def _master(self) -> Side:
        return self.operator.master

    def _any_side(self) -> Side:
        return self.chance.choice(self.sides.both)

    # --- Faults ---

    def _crash(self) -> None:
        is_power_cut = self.chance.random() < 0.5
        for side in self.chance.choice([(self.sides.a,), (self.sides.b,), self.sides.both]):
            side.crash(is_power_cut=is_power_cut)

    def _crash_later(self) -> None:
        moment, left = self.chance.choice(["flush", "append"]), self.chance.randint(1, 15)
        self._any_side().plan = Plan(moment, left, self.chance.random() < 0.5)

    def _restart(self) -> None:
        for side in self.chance.sample(self.sides.both, 2):
            self.operator.restart(side)

    async def _stop(self) -> None:
        side = self._any_side()
        side.thaw()
        await side.stop()

    def _cut(self) -> None:
        self.sides.say("cuts the link")
        self.sides.network.is_cut = True

    def _slow(self) -> None:
        network = self.sides.network
        network.delays_ms, network.is_in_pieces = self.chance.choice(LINKS_MS), True
        self.sides.say("slows the link", network.delays_ms)

    def _freeze(self) -> None:
        side = self._any_side()
        if side.services is not None:
            self.sides.say("freezes", side.name)
            side.freeze()

    def _jump(self) -> None:
        side, delta_ms = self._any_side(), self.chance.choice(JUMPS_MS)
        self.sides.say("jump", side.name, delta_ms)
        side.clock.jump(delta_ms)
        self._late_ms += abs(delta_ms)

    def _fill(self) -> None:
        side = self._any_side()
        self.sides.say("fills", side.name)
        side.is_full = True

    def _fail_flush(self) -> None:
        self._any_side().disk.fails_at = self.chance.randint(1, 10)

    async def _fail_over(self) -> None:
        if not self.operator.is_slave_missing:
            chance = self.chance
            if chance.random() < 0.7:
                await self._sends()
            # Only a slave that flushes before it reports survives that with all messages.
            is_flushed = self.sides.flush is FlushDiskType.SYNC_FLUSH
            is_slave_cut = chance.random() < (0.5 if is_flushed else 0.1)
            await self.operator.fail_over(
                is_power_cut=chance.random() < 0.5, is_slave_cut=is_slave_cut
            )

    async def _sends(self) -> None:
        """Lets clients send and read before or after a fail-over, at times without the slave."""
        self.sides.heal()
        self.chance.choice([self._cut, self._slow, self.sides.heal])()
        for _ in range(3):
            self.sides.spawn(self.clients.send(self._master, is_delayed=False))
            await self.sides.pause(self.chance.choice(GAPS_MS[:5]))
        self.sides.spawn(self.clients.read(self._master))

    async def _bring_slave(self) -> None:
        is_needed = self.operator.is_slave_missing or "store align" in self.operator.failure
        if is_needed and self._master.is_serving_master:
            self.sides.heal()
            await self.operator.bring_slave(self.chance.choice([*Way, Way.START, Way.ALIGN]))

    # --- The run ---

    def run(self) -> None:
        """Runs the pair, and judges it."""
        with self.sides.patched():
            try:
                self.sides.loop.live(self._live())
            finally:
                self.sides.loop.tear_down()

    async def _live(self) -> None:
        sides, operator = self.sides, self.operator
        sides.a.start()
        await operator.until_master()
        services = sides.a.services
        assert services is not None
        await services.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES))
        services.groups.configs.get_or_create(GROUP)
        await services.groups.configs.save_new()
        sides.b.start()
        for _ in range(self.chance.choice(STEPS)):
            work = self.chance.choice(self._steps)()
            if asyncio.iscoroutine(work):
                await work
            await sides.pause(self.chance.choice(GAPS_MS))
            operator.look()
        if self.chance.random() < 0.7:
            await self._fail_over()
            await self._sends()
            await self._bring_slave()
        await self._calm()
        self._judge()
        for side in sides.both:
            await side.stop()
        sides.say(sides.network.sent_bytes, "bytes sent")

    async def _calm(self) -> None:
        for side in self.sides.both:
            side.plan, side.disk.fails_at = None, 0
            side.thaw()
            if side.disk.has_failed:
                await side.stop()
        self.sides.heal()
        await self.operator.follow()
        await self.sides.pause(DELAY_MS + self._late_ms)
        await self.operator.follow()
        for side in self.sides.both:
            await self.clients.read(side)
        await self.sides.pause(SYNCS_MS)
        await self.operator.follow()

    def _judge(self) -> None:
        logs = [
            RawLog.of(side.disk.folder, side.store.positions().log_end)
            for side in (self._master, self.operator.slave)
        ]
        master, slave = logs
        begin = max(master.begin, slave.begin)
        if master.data[begin - master.begin :] != slave.data[begin - slave.begin :]:
            self.faults.append("the logs differ")
        self.faults += self._differences()
        operator = self.operator
        verdict = Verdict(self.clients, operator.fail_overs, self.sides.power_cuts, master)
        self.faults += verdict.faults()

    def _differences(self) -> list[str]:
        """Returns a sentence for each table that differs."""
        master, slave = self._master.services, self.operator.slave.services
        assert master is not None
        assert slave is not None
        pairs = {
            "topics": (master.topics.copy(), slave.topics.copy()),
            "groups": (master.groups.configs.copy(), slave.groups.configs.copy()),
            "offsets": (
                master.offsets.committed.offsets_of(GROUP, TOPIC),
                slave.offsets.committed.offsets_of(GROUP, TOPIC),
            ),
            "queues": (_queues_of(self._master), _queues_of(self.operator.slave)),
        }
        return [
            f"{name} differ: {one} of the master, {other} of the slave"
            for name, (one, other) in pairs.items()
            if one != other
        ]


def _queues_of(side: Side) -> dict[str, object]:
    """Returns the queues that had a message; a refused first one leaves an empty queue."""
    ranges = {str(queue): side.store.range_of(queue) for queue in sorted(side.store.queues())}
    return {queue: each for queue, each in ranges.items() if each.max_offset}


def simulate(seed: int) -> PairSimulation:
    """Runs a seed. Raises the errors of its run."""
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rocketpy-", dir=in_memory) as folder:
        simulation = PairSimulation(seed, Path(folder))
        try:
            simulation.run()
        except Exception as error:
            simulation.sides.say("failed", repr(error))
            simulation.faults.append(f"the run failed: {error!r}")
            raise PairRunError(simulation) from error
    return simulation


class PairRunError(Exception):
    """An error of a run; `simulation` has the steps up to there."""

    def __init__(self, simulation: PairSimulation) -> None:
        super().__init__(simulation.faults[-1])
        self.simulation = simulation

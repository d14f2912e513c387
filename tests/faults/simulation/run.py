"""One seed: an hour or more of a broker's life, and the history of its clients."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.runtime.clock import sleep
from rocketpy_proto.model.configs import TopicConfig
from tests.faults.histories.events import FINAL
from tests.faults.histories.history import History
from tests.faults.simulation.batch_writers import BatchWriter
from tests.faults.simulation.consumers import Consumers
from tests.faults.simulation.machine import HOUR_MS, Crash, Machine, Moment
from tests.faults.simulation.producers import QUEUES, TOPIC, Producers
from tests.faults.simulation.transactions import Transactions

# Longer than the longest delay of a redelivery.
REST_MS = 660_000
LIVES = (1, 2, 2, 3, 4)
GAPS_MS = (0, 0, 0, 1, 30, 400, 2_000, 15_000, 40_000, 130_000)
# The most moments, or milliseconds, from its start until a life may crash.
LEFT_MAX = {
    Moment.FLUSH: (60,),
    Moment.APPEND: (60,),
    Moment.SAVE: (3,),
    Moment.TIME: (1_000, 60_000, 600_000),
}
JUMPS_MS = (-3_600_000, -30_000, 20_000, 900_000)


class Simulation:
    """A run that follows from a seed; `history` is judged after `run`."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.history = History()
        self.machine = Machine(folder, self.chance, self.history)
        self.producers = Producers(self.machine)
        self.consumers = Consumers(self.machine)
        self.transactions = Transactions(self.machine, self.producers)
        self.batches = BatchWriter(self.machine, self.producers)
        self._steps = self._chosen_steps()
        self._begin_ms = self.machine.clock.monotonic_ms()

    def _chosen_steps(self) -> list[Callable[[BrokerServices], object]]:
        """Returns the clients' steps, some often and some never, as the seed decides."""
        spawn, chance = self.machine.spawn, self.chance
        producers, consumers, transactions = self.producers, self.consumers, self.transactions
        steps: list[Callable[[BrokerServices], object]] = [
            lambda services: spawn(producers.send(services, chance.choice([1, 1, 5]))),
            lambda services: spawn(
                producers.send(services, chance.choice([1, 3]), producers.any_wait())
            ),
            lambda services: spawn(producers.recall(services)),
            lambda services: spawn(consumers.drain(services)),
            lambda services: spawn(consumers.send_back(services)),
            lambda services: spawn(consumers.hold(services)),
            lambda services: spawn(self._clean(services)),
            lambda services: spawn(consumers.beat(services)),
            consumers.lock,
            consumers.unlock,
            consumers.look_at_members,
            lambda services: spawn(transactions.prepare(services)),
            lambda services: spawn(transactions.decide(services)),
            lambda services: spawn(transactions.mislead(services)),
            lambda services: spawn(transactions.listen(services)),
            lambda services: spawn(self.batches.write(services)),
            lambda _: self._cancel_one(),
            lambda _: self._jump(),
        ]
        weights = [chance.choice([0, 1, 3, 8]) for _ in steps]
        weights[0] += 1
        # Clock changes weaken the promises, and many seeds should keep all of them.
        weights[-1] = chance.choice([0, 0, 0, 1])
        return [step for step, weight in zip(steps, weights, strict=True) for _ in range(weight)]

    async def _clean(self, services: BrokerServices) -> None:
        """Cleans old segments, often as soon as new ones are created, and all but the last one."""
        if self.chance.random() < 0.5:
            await self.consumers.clean(services)
            return
        if self.chance.random() < 0.5:
            await self.transactions.prepare(services)
        await self.producers.fill(services)
        for _ in range(3):
            await self.consumers.clean(services)

    def _cancel_one(self) -> None:
        tasks = [*self.machine.tasks]
        if tasks:
            self.machine.say("cancels a call")
            self.chance.choice(tasks).cancel()

    def _jump(self) -> None:
        delta_ms = self.chance.choice(JUMPS_MS)
        self.machine.say("jump", delta_ms)
        self.machine.jump(delta_ms)
        self.producers.clock_was_set(delta_ms)

    # --- Lives ---

    def run(self) -> None:
        """Runs all lives, and a last one that completes all work."""
        with self.machine.patched():
            for _ in range(self.chance.choice(LIVES)):
                self._draw_faults()
                self.machine.live(self._use)
            if self.chance.random() < 0.7:
                crash = Crash(Moment.SAVE, self.chance.randint(1, 3), self.chance.random() < 0.8)
                self.machine.crash_plan = crash
                self.machine.live(self._wait)
            self.machine.crash_plan = None
            self.machine.disk.fails_at = 0
            self.machine.live(self._rest)

    def _draw_faults(self) -> None:
        chance = self.chance
        self.machine.crash_plan = None
        if chance.random() < 0.75:
            moment = chance.choice(list(Moment))
            left = chance.choice(LEFT_MAX[moment])
            crash = Crash(moment, chance.randint(1, left), chance.random() < 0.5)
            self.machine.crash_plan = crash
        self.machine.disk.fails_at = chance.randint(1, 200) if chance.random() < 0.1 else 0

    async def _use(self, services: BrokerServices) -> None:
        if TOPIC not in services.topics:
            await services.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES))
        for _ in range(self.chance.choice([5, 20, 60])):
            self.chance.choice(self._steps)(services)
            gap_ms = self.chance.choice(GAPS_MS)
            if gap_ms:
                await sleep(self.machine.clock, gap_ms)
            if self.machine.is_gone:
                return

    async def _wait(self, _rooms: BrokerServices) -> None:
        """Waits until all delayed messages are due."""
        await sleep(self.machine.clock, max(self.machine.due_ms_max - self.machine.now_ms, 1))

    async def _rest(self, services: BrokerServices) -> None:
        """Answers all check-backs, waits for delayed messages, and reads everything."""
        if TOPIC not in services.topics:
            await services.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES))
        self.transactions.answer_all()
        listening = self.machine.spawn(self.transactions.listen(services))
        await sleep(self.machine.clock, 100_000)
        listening.cancel()
        await self.transactions.end_all(services)
        await self.batches.write(services, may_stop=False)
        gone_ms = self.machine.clock.monotonic_ms() - self._begin_ms
        left_ms = self.machine.due_ms_max - self.machine.now_ms
        await sleep(self.machine.clock, max(left_ms + REST_MS, HOUR_MS - gone_ms))
        await self.consumers.drain(services)
        await self.consumers.drain(services, FINAL)


def simulate(seed: int) -> Simulation:
    """Runs a seed. Raises the errors of its run; its history is not judged yet."""
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rocketpy-", dir=in_memory) as folder:
        simulation = Simulation(seed, Path(folder))
        simulation.run()
    return simulation

"""Producers of messages, immediate, delayed or timed; some messages are recalled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.recall_handle import RecallHandle
from rocketpy_proto.record import BlockColumns, encode_block
from tests.faults.histories.events import Outcome
from tests.faults.histories.history import body_of, id_of
from tests.faults.simulation.machine import LEVELS, Machine
from tests.support.blocks import BORN_HOST, WireBlock

TOPIC, QUEUES = "T", 2
ANY_QUEUE = -1
BODY_BYTES = (8, 200)
DELAYS_MS = DelayLevels.parse(LEVELS).delays_ms


def block_of(
    topic: str, bodies: Sequence[bytes], properties: Mapping[str, str], born_ms: int
) -> WireBlock:
    """Returns messages as a producer sends them; the key of each is its id."""
    ids = [id_of(body) for body in bodies]
    named = {"UNIQ_KEY": ids} | {name: [text] * len(ids) for name, text in properties.items()}
    encoded = encode_block(
        BlockColumns(
            body=pa.array(bodies, pa.binary()),
            topic=topic,
            queue_id=0,
            tags=None,
            keys=None,
            properties=None,
            extra={name: pa.array(values, pa.string()) for name, values in named.items()},
            born_timestamp_ms=born_ms,
            born_host=BORN_HOST,
        )
    )
    return WireBlock(bytes(encoded.data), encoded.sizes.astype(">i4").tobytes())


@dataclass
class Wait:
    """A message's delay: properties and due time."""

    properties: dict[str, str] = field(default_factory=dict)
    delay_ms: int = 0
    deliver_ms: int = 0

    def due_ms(self, now_ms: int) -> int:
        """Returns the due time of a message that is stored now."""
        return self.deliver_ms or (now_ms + self.delay_ms if self.delay_ms else 0)


class Producers:
    """Every producer of messages."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._history = machine.history
        self._count = 0
        # By id: sends with a delivery time that may be recalled.
        self._recallable: dict[str, int] = {}

    def new_bodies(self, count: int, sizes: tuple[int, int] = BODY_BYTES) -> list[bytes]:
        """Returns messages with new ids."""
        self._count += count
        numbers = range(self._count - count, self._count)
        return [body_of(f"m{number}", self._machine.chance.randint(*sizes)) for number in numbers]

    def any_wait(self) -> Wait:
        """Returns a level, a delay or a time."""
        chance, now_ms = self._machine.chance, self._machine.now_ms
        kind = chance.choice(["level", "level", "time", "time", "delay"])
        if kind == "level":
            level = chance.choice([1, 1, 2, 3, 4, 5])
            return Wait({"DELAY": str(level)}, DELAYS_MS[level - 1])
        delay_ms = chance.choice([1, 500, 1_500, 7_000, 60_000, 900_000])
        if kind == "delay":
            return Wait({"TIMER_DELAY_MS": str(delay_ms)}, delay_ms)
        deliver_ms = now_ms + delay_ms
        return Wait({"TIMER_DELIVER_MS": str(deliver_ms)}, deliver_ms=deliver_ms)

    async def fill(self, services: BrokerServices) -> None:
        """Sends messages that end a segment."""
        await self.send(services, 3, sizes=(4_800, 4_900))

    async def send(
        self,
        services: BrokerServices,
        count: int,
        wait: Wait | None = None,
        sizes: tuple[int, int] = BODY_BYTES,
    ) -> None:
        """Sends one block of messages."""
        machine, history = self._machine, self._history
        wait = wait or Wait()
        bodies = self.new_bodies(count, sizes)
        ids = [id_of(body) for body in bodies]
        queue_id = machine.chance.choice([ANY_QUEUE, *range(QUEUES)])
        history.begin(ids[0], QueueKey(TOPIC, queue_id), bodies)
        sends = [history.sends[one] for one in ids]
        for send in sends:
            send.due_ms = wait.due_ms(machine.now_ms)
            send.unordered = bool(wait.properties)
        machine.due_ms_max = max(machine.due_ms_max, wait.due_ms(machine.now_ms))
        block = block_of(TOPIC, bodies, wait.properties, machine.now_ms)
        try:
            stored = await machine.call(
                services.sends.append(TOPIC, queue_id, block.records, block.record_sizes)
            )
        except BrokerError as error:
            machine.say("refused", ids, error)
            history.refused(ids)
            return
        try:
            await machine.call(services.sends.acknowledged(stored))
        except BrokerError as error:
            machine.say("unknown", ids, error)
            return
        machine.say("acked", ids, stored.queue_id, stored.result.end_offset)
        result, at_ms = stored.result, machine.clock.monotonic_ms()
        history.acked(ids, stored.queue_id, result.queue_offset, result.end_offset, at_ms)
        for send in sends:
            send.punctual = bool(wait.properties) and machine.is_ahead
        if wait.deliver_ms:
            self._recallable.update(dict.fromkeys(ids, wait.deliver_ms))

    async def recall(self, services: BrokerServices) -> None:
        """Recalls a message, if any waits."""
        machine, history = self._machine, self._history
        waiting = [one for one, due in self._recallable.items() if due > machine.now_ms]
        if not waiting:
            return
        message_id = machine.chance.choice(waiting)
        send = history.sends[message_id]
        handle = RecallHandle.of_message(
            TOPIC, "broker-a", self._recallable.pop(message_id), message_id
        )
        before = (send.outcome, send.log_end)
        history.outcome(message_id, Outcome.UNKNOWN, send.log_end)
        try:
            await machine.call(services.delay.recall.recall(TOPIC, handle.encode()))
        except BrokerError as error:
            machine.say("recall", message_id, error)
            if "due in" in str(error):
                history.outcome(message_id, *before)
            return
        machine.say("recalled", message_id)
        end = machine.log_end
        if send.outcome is Outcome.UNKNOWN:
            history.outcome(message_id, Outcome.HIDDEN, end)

    def clock_was_set(self, delta_ms: int) -> None:
        """Drops promises after the clock was set back.

        A waiting message may be delivered at once if it was stored by a clock ahead of this one. A
        delivered message may appear as waiting to a client that recalls it.
        """
        if delta_ms < 0:
            self._recallable.clear()
            for send in self._history.sends.values():
                if send.due_ms:
                    send.due_ms = min(send.due_ms, self._machine.now_ms)
                    send.punctual = False

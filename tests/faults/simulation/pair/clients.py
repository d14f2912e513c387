"""Producers and consumers of a pair, with what they were answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rocketpy_broker.errors import BrokerError, UnconfirmedError
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import decode_record
from tests.faults.histories.history import body_of, id_of
from tests.faults.simulation.machine import MachineGoneError
from tests.faults.simulation.pair.sides import Side, Sides
from tests.faults.simulation.producers import QUEUES, TOPIC, block_of

GROUP = "g"
OTHER_TOPICS = ("U0", "U1")
LEVELS = 4
SEND_OK, UNCONFIRMED = "SEND_OK", "unconfirmed"


@dataclass
class Sent:
    """A message with its answer; `begin` and `end` are its place in the log."""

    message_id: str
    queue: QueueKey
    is_delayed: bool
    epoch: int
    is_sync: bool
    # The number of power cuts before it.
    cuts: int
    answer: str = ""
    queue_offset: int = -1
    begin: int = -1
    end: int = -1


@dataclass(frozen=True)
class Read:
    """A message as a consumer got it from a side."""

    side: str
    queue: QueueKey
    queue_offset: int
    message_id: str
    end: int


@dataclass
class Clients:
    """Every client of the pair."""

    sides: Sides
    epoch: int = 0
    sent: dict[str, Sent] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    _count: int = 0
    _next: dict[tuple[str, QueueKey], int] = field(default_factory=dict)
    # Queues with a send under way: a queue's messages are sent one after the other.
    _busy: set[QueueKey] = field(default_factory=set)

    async def send(self, side: Side, *, is_delayed: bool, is_large: bool = False) -> None:
        """Sends a few messages to the master, as one block."""
        services, chance = side.services, self.sides.chance
        queue = QueueKey(TOPIC, chance.randrange(QUEUES))
        if services is None or queue in self._busy or TOPIC not in services.topics:
            return
        self._busy.add(queue)
        try:
            count = chance.choice([1, 1, 3])
            sizes = (3_000, 5_000) if is_large else (8, 400)
            numbers = range(self._count, self._count + count)
            self._count += count
            bodies = [body_of(f"m{each:05d}", chance.randint(*sizes)) for each in numbers]
            is_sync = services.replication.slaves.is_waited_for
            cuts = len(self.sides.power_cuts)
            sent = [
                Sent(id_of(each), queue, is_delayed, self.epoch, is_sync, cuts) for each in bodies
            ]
            self.sent |= {each.message_id: each for each in sent}
            properties = {"DELAY": str(chance.randint(1, LEVELS))} if is_delayed else {}
            block = block_of(TOPIC, bodies, properties, side.clock.now_ms())
            await self._store(side, queue, block.records, block.record_sizes, sent)
        finally:
            self._busy.discard(queue)

    async def _store(
        self, side: Side, queue: QueueKey, records: bytes, sizes: bytes, sent: list[Sent]
    ) -> None:
        services = side.services
        assert services is not None
        answer = "refused"
        try:
            stored = await side.call(services.sends.append(*queue, records, sizes))
            answer = SEND_OK
            await side.call(services.sends.acknowledged(stored))
        except UnconfirmedError as error:
            answer = UNCONFIRMED if "slave" in str(error) else "not flushed"
        except BrokerError as error:
            answer = "unknown" if answer == SEND_OK else "refused"
            self.sides.say("not sent", sent[0].message_id, error)
        if answer in (SEND_OK, UNCONFIRMED):
            for row, each in enumerate(sent):
                each.queue_offset = stored.result.queue_offset + row
                each.begin, each.end = stored.result.physical_offset, stored.result.end_offset
        for each in sent:
            each.answer = answer
        self.answers[answer] += 1
        words = [each.message_id for each in sent], sent[0].queue.queue_id, sent[0].end
        self.sides.say("sent", side.name, answer, *words)

    async def read(self, side: Side) -> None:
        """Reads what is new at a side, and commits its offsets at a master."""
        services = side.services
        if services is None or TOPIC not in services.topics:
            return
        for queue in (QueueKey(TOPIC, number) for number in range(QUEUES)):
            bounds = services.offsets.offsets._store.range_of(queue)
            offset = max(self._next.get((side.name, queue), 0), bounds.min_offset)
            if offset >= bounds.max_offset:
                continue
            try:
                async for answer in services.pull.pulls.pull(PullRequest(queue, offset)):
                    if side.services is not services:
                        raise MachineGoneError
                    self._take(side, queue, offset, answer.result)
                    offset = answer.result.next_offset
                self._next[side.name, queue] = offset
                if side.is_serving_master and self.sides.chance.random() < 0.5:
                    await side.call(services.offsets.offsets.update(GROUP, queue, offset))
            except BrokerError as error:
                self.sides.say("not read", side.name, queue, error)

    def _take(self, side: Side, queue: QueueKey, offset: int, result: object) -> None:
        data, position = result.data, 0  # type: ignore[attr-defined]
        for size in result.sizes.tolist():  # type: ignore[attr-defined]
            record = decode_record(data, position).record
            position += size
            if record.queue_offset != offset:
                self.faults.append(f"{side.name} gave {queue} {record.queue_offset}, not {offset}")
            offset = record.queue_offset + 1
            message_id, end = id_of(bytes(record.body)), record.physical_offset + size
            self.reads.append(Read(side.name, queue, record.queue_offset, message_id, end))

    async def change_topics(self, side: Side) -> None:
        """Creates another topic and sends to it, or deletes it."""
        services, chance = side.services, self.sides.chance
        if services is None or not side.is_serving_master:
            return
        topic = chance.choice(OTHER_TOPICS)
        try:
            if topic not in services.topics:
                await side.call(services.topics.create(TopicConfig(topic, 1, 1)))
                self.sides.say("created", topic)
            elif chance.random() < 0.3:
                await side.call(services.admin.admin.delete_topic(topic))
                self.sides.say("deleted", topic)
            else:
                block = block_of(topic, [body_of(f"u{self._count:05d}", 20)], {}, 0)
                self._count += 1
                await side.call(services.sends.append(topic, 0, block.records, block.record_sizes))
        except (BrokerError, OSError) as error:
            self.sides.say("topic", topic, "not changed", error)

    def forget_places(self, log_ends: dict[QueueKey, int]) -> None:
        """Puts readers back to the ends of a new master's queues, as a client's error does."""
        for (name, queue), offset in self._next.items():
            self._next[name, queue] = min(offset, log_ends.get(queue, 0))

"""Consumers: they read, send back messages, lock queues and hold pulls."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.groups.clients.consumers import ConsumerData
from rocketpy_broker.services.groups.clients.registry import Heartbeat
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.services.retry.message_lookup import SendBack
from rocketpy_broker.services.retry.service import SentBackTo
from rocketpy_broker.store.values import GetMessageResult, QueueKey
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC, dead_letter_topic, retry_topic
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.record import decode_record
from tests.faults.histories.events import (
    FINAL,
    Cleaned,
    CleanedLog,
    Delivery,
    Fault,
    Held,
    Lock,
    Outcome,
)
from tests.faults.histories.history import copy_id, hash_of, id_of
from tests.faults.simulation.machine import DISK_NEARLY_FULL, DISK_USED, Machine
from tests.faults.simulation.producers import DELAYS_MS, QUEUES, TOPIC

GROUP = "g"
RETRY, DEAD = retry_topic(GROUP), dead_letter_topic(GROUP)
READ = [*(QueueKey(TOPIC, number) for number in range(QUEUES)), QueueKey(RETRY, 0)]
READ += [QueueKey(DEAD, 0), QueueKey(CHECK_MAX_TIME_TOPIC, 0)]
TIMES_MAX = 2
FIRST_LEVEL = 3
CLIENTS = ("c1", "c2", "c3")
# A lock that is not renewed expires after this.
LOCK_MS = 60_000
# A client expires this long after its last heartbeat, at the next look.
EXPIRY_MS, LOOK_MS = 120_000, 11_000


@dataclass(frozen=True)
class Taken:
    """A message that a consumer has, and may send back."""

    message_id: str
    physical_offset: int
    reconsume_times: int
    log_end: int


class Consumers:
    """Every consumer of the group."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._history = machine.history
        self._next: dict[QueueKey, int] = {}
        self._taken: list[Taken] = []
        self._locks: list[Lock] = []
        self._beats: dict[str, float] = {}
        self._pulls = 0
        machine.on_power_cut.append(self._forget_beyond)
        machine.on_end.append(self._broker_ended)

    # --- Reading ---

    async def drain(self, services: BrokerServices, reader: str = "consumer") -> None:
        """Reads all unread messages."""
        for queue in READ:
            await self._drain(services, queue, reader)

    async def _drain(self, services: BrokerServices, queue: QueueKey, reader: str) -> None:
        bounds = services.offsets.offsets._store.range_of(queue)
        offset = bounds.min_offset
        if reader == FINAL and self._machine.was_cleaned:
            self._history.events.append(Cleaned(*queue, offset))
        if reader != FINAL:
            offset = max(offset, self._next.get(queue, 0))
        if offset >= bounds.max_offset:
            return
        try:
            async for answer in services.pull.pulls.pull(PullRequest(queue, offset)):
                if self._machine.is_gone:
                    return
                self._take(queue, answer.result, reader)
                if reader != FINAL:
                    self._next[queue] = answer.result.next_offset
        except BrokerError as error:
            self._machine.say("not read", queue, error)

    def _take(self, queue: QueueKey, result: GetMessageResult, reader: str) -> None:
        data, position = result.data, 0
        for size in result.sizes.tolist():
            record = decode_record(data, position).record
            position += size
            message_id = id_of(record.body)
            end = record.physical_offset + size
            shown = message_id
            if queue.topic != TOPIC:
                shown = copy_id(message_id, queue.topic, record.reconsume_times)
            self._history.seen(
                Delivery(
                    reader,
                    *queue,
                    record.queue_offset,
                    shown,
                    hash_of(record.body),
                    record.store_timestamp_ms,
                    end,
                )
            )
            if reader == "consumer":
                self._machine.say("read", queue.topic, queue.queue_id, shown)
                if queue.topic in (TOPIC, RETRY):
                    taken = Taken(message_id, record.physical_offset, record.reconsume_times, end)
                    self._taken.append(taken)

    def _forget_beyond(self, durable_end: int) -> None:
        """Forgets reads beyond the durable end: such messages may be lost, or be read again."""
        self._taken = [taken for taken in self._taken if taken.log_end <= durable_end]
        self._next = {}
        for each in self._history.deliveries:
            if each.reader == "consumer":
                queue = QueueKey(each.topic, each.queue_id)
                self._next[queue] = max(self._next.get(queue, 0), each.queue_offset + 1)

    async def clean(self, services: BrokerServices) -> None:
        """Lets the disk get nearly full, so that the broker removes its oldest segments."""
        machine = self._machine
        await self.drain(services)
        machine.was_cleaned = True
        machine.disk_used = DISK_NEARLY_FULL
        try:
            count = await machine.call(services.admin.store_admin._cleaning.clean(manual=False))
        except OSError as error:
            machine.say("not cleaned", error)
            return
        finally:
            machine.disk_used = DISK_USED
        machine.say("cleaned", count)
        begin = services.offsets.offsets._store.positions().log_begin
        self._history.events.append(CleanedLog(begin))
        self._taken = [taken for taken in self._taken if taken.physical_offset >= begin]

    async def hold(self, services: BrokerServices) -> None:
        """Pulls at the end of a queue, and waits."""
        machine = self._machine
        queue = machine.chance.choice(READ[:QUEUES])
        offset = services.offsets.offsets._store.range_of(queue).max_offset
        wait_ms = machine.chance.choice([10, 5_000, 30_000, 60_000])
        begin_ms = machine.clock.monotonic_ms()
        self._pulls += 1
        name = f"pull {self._pulls}"
        request = PullRequest(queue, offset, wait_ms_max=wait_ms)
        async for answer in services.pull.pulls.pull(request):
            if machine.is_gone:
                return
            result = answer.result
            if len(result.sizes):
                machine.say(name, "got", len(result.sizes))
                self._take(queue, result, name)
            else:
                machine.say(name, "got nothing", result.status.name)
                to_ms = machine.clock.monotonic_ms()
                self._history.events.append(Held(*queue, offset, begin_ms, to_ms))
            return

    # --- Sending back ---

    async def send_back(self, services: BrokerServices) -> None:
        """Sends a message back that could not be consumed."""
        machine, history = self._machine, self._history
        if not self._taken:
            return
        taken = machine.chance.choice(self._taken)
        level = machine.chance.choice([0, 0, 1, 2, -1])
        times = taken.reconsume_times
        is_dead = level < 0 or times >= TIMES_MAX
        topic = DEAD if is_dead else RETRY
        name = copy_id(taken.message_id, topic, times + 1)
        send = history.begin_copy(taken.message_id, name, QueueKey(topic, 0))
        if not is_dead and send.tries == 1:
            delay_ms = DELAYS_MS[(level or FIRST_LEVEL + times) - 1]
            send.due_ms = machine.now_ms + delay_ms
        # Another call may send the same message back meanwhile.
        self._taken.remove(taken)
        machine.say("sends back", name)
        try:
            (outcome,) = await machine.call(
                services.retry.send_back(
                    GROUP,
                    [SendBack(commit_log_offset=taken.physical_offset, delay_level=level)],
                    TIMES_MAX,
                )
            )
        except BrokerError as error:
            machine.say("not sent back", name, error)
            self._taken.append(taken)
            return
        if isinstance(outcome, SentBackTo):
            machine.say("sent back", name, outcome.value)
            if outcome is not (SentBackTo.DEAD_LETTER if is_dead else SentBackTo.RETRY):
                self.wrong("moved", f"{name} became {outcome}")
            history.outcome(name, Outcome.ACKED, machine.log_end)
            send.punctual = not is_dead and send.tries == 1 and machine.is_ahead
        else:
            machine.say("not sent back", name, outcome)
            self._taken.append(taken)

    def wrong(self, kind: str, sentence: str) -> None:
        """Adds a fault that is visible at once."""
        self._history.events.append(Fault(kind, sentence))

    # --- Locks ---

    def lock(self, services: BrokerServices) -> None:
        """Locks queues for a client, or renews its locks."""
        machine = self._machine
        client = machine.chance.choice(CLIENTS)
        queues = machine.chance.sample(READ[:QUEUES], machine.chance.randint(1, QUEUES))
        got = services.groups.locks.lock(GROUP, client, queues)
        now_ms = machine.clock.monotonic_ms()
        machine.say("lock", client, queues, got)
        for queue in queues:
            granted = queue in got
            until_ms = now_ms + LOCK_MS if granted else now_ms
            lock = Lock(GROUP, *queue, client, granted, now_ms, until_ms)
            self._history.events.append(lock)
            if granted:
                self._locks.append(lock)

    def unlock(self, services: BrokerServices) -> None:
        """Unlocks a queue for a client, which may not have it."""
        client = self._machine.chance.choice(CLIENTS)
        queue = self._machine.chance.choice(READ[:QUEUES])
        services.groups.locks.unlock(GROUP, client, [queue])
        self._release(
            [each for each in self._locks if each.client == client and _queue(each) == queue]
        )

    def _release(self, locks: list[Lock]) -> None:
        now_ms = self._machine.clock.monotonic_ms()
        for lock in locks:
            # At this very moment another client may have it.
            lock.to_ms = min(lock.to_ms, now_ms)
        self._locks = [each for each in self._locks if each.to_ms > now_ms]

    def _broker_ended(self) -> None:
        self._release(self._locks)
        self._beats.clear()

    # --- Members ---

    async def beat(self, services: BrokerServices) -> None:
        """Sends a consumer's heartbeat."""
        machine = self._machine
        client = machine.chance.choice(CLIENTS)
        data = ConsumerData(
            GROUP,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            [Subscription(TOPIC, "TAG", "*", 1)],
        )
        await machine.call(services.groups.clients.heartbeat(Heartbeat(client, "a:1", [], [data])))
        self._beats[client] = machine.clock.monotonic_ms()
        machine.say("heartbeat", client)

    def look_at_members(self, services: BrokerServices) -> None:
        """Compares the members with the clients that sent heartbeats."""
        now_ms = self._machine.clock.monotonic_ms()
        try:
            members = set(services.groups.clients.member_ids(GROUP))
        except BrokerError:
            members = set()
        for client in CLIENTS:
            silent_ms = now_ms - self._beats.get(client, float("-inf"))
            if silent_ms < EXPIRY_MS and client not in members:
                self.wrong("forgotten", f"{client} was heard of {silent_ms} ms ago")
            if silent_ms > EXPIRY_MS + LOOK_MS and client in members:
                self.wrong("remembered", f"{client} was silent for {silent_ms} ms")


def _queue(lock: Lock) -> QueueKey:
    return QueueKey(lock.topic, lock.queue_id)

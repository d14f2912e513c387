"""Producers of transactions: they decide late, twice, only when asked, or never."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.errors import BrokerError, NoticesEndedError
from rocketpy_broker.services.groups.clients.registry import Heartbeat
from rocketpy_broker.services.transactions.messages import Operation
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC
from tests.faults.histories.events import ExactlyOne, Fault, Outcome
from tests.faults.histories.history import copy_id, id_of
from tests.faults.simulation.machine import Machine
from tests.faults.simulation.producers import QUEUES, TOPIC, Producers, Wait, block_of
from tests.faults.workers.transaction_programs import end_request

PRODUCERS = "producers"
CLIENT = "p1"


@dataclass
class Transaction:
    """A producer's view of a transaction; ends are offsets in the log, 0 without a promise."""

    message_id: str
    wait: Wait
    physical_offset: int = -1
    queue_offset: int = -1
    prepared_end: int = 0
    decision: Operation | None = None
    ended_end: int = 0

    @property
    def discarded_id(self) -> str:
        """The id of the copy that is left when the broker gives the transaction up."""
        return copy_id(self.message_id, CHECK_MAX_TIME_TOPIC)


class Transactions:
    """Every transaction."""

    def __init__(self, machine: Machine, producers: Producers) -> None:
        self._machine = machine
        self._history = machine.history
        self._producers = producers
        self._known: dict[str, Transaction] = {}
        # How often a check-back is answered.
        self._answer_chance = machine.chance.choice([0.0, 0.5, 1.0])
        machine.on_power_cut.append(self._forget_beyond)

    def _forget_beyond(self, durable_end: int) -> None:
        for one in self._known.values():
            if one.prepared_end > durable_end:
                one.prepared_end = 0
            if one.ended_end > durable_end:
                one.ended_end = 0

    async def prepare(self, services: BrokerServices) -> None:
        """Sends a half message."""
        machine, history = self._machine, self._history
        (body,) = self._producers.new_bodies(1)
        message_id = id_of(body)
        queue_id = machine.chance.randrange(QUEUES)
        wait = self._producers.any_wait() if machine.chance.random() < 0.2 else Wait()
        one = self._known[message_id] = Transaction(message_id, wait)
        history.begin(message_id, QueueKey(TOPIC, queue_id), [body])
        history.sends[message_id].unordered = True
        history.outcome(message_id, Outcome.HIDDEN)
        history.begin_copy(message_id, one.discarded_id, QueueKey(CHECK_MAX_TIME_TOPIC, 0))
        properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS} | wait.properties
        if machine.chance.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = machine.chance.choice(["1", "60"])
        block = block_of(TOPIC, [body], properties, machine.now_ms)
        sends = services.sends
        try:
            stored = await machine.call(
                sends.append(TOPIC, queue_id, block.records, block.record_sizes)
            )
            one.physical_offset = stored.result.physical_offset
            one.queue_offset = stored.result.queue_offset
            await machine.call(sends.acknowledged(stored))
        except BrokerError as error:
            machine.say("not prepared", message_id, error)
            return
        one.prepared_end = stored.result.end_offset
        machine.say("prepared", message_id)

    def _choose(self) -> Transaction | None:
        chosen = [one for one in self._known.values() if one.physical_offset >= 0][-8:]
        return self._machine.chance.choice(chosen) if chosen else None

    async def decide(self, services: BrokerServices) -> None:
        """Commits or rolls back; sometimes not for the first time."""
        one = self._choose()
        if one is not None:
            await self._end(services, one, one.physical_offset, one.queue_offset)

    async def _end(
        self,
        services: BrokerServices,
        one: Transaction,
        offset: int,
        queue_offset: int,
        *,
        asked: bool = False,
    ) -> None:
        machine, history = self._machine, self._history
        if one.decision is None:
            rolls_back = machine.chance.random() < 0.3
            one.decision = Operation.ROLLBACK if rolls_back else Operation.COMMIT
        send = history.sends[one.message_id]
        if one.decision is Operation.COMMIT and send.outcome is Outcome.HIDDEN:
            history.outcome(one.message_id, Outcome.UNKNOWN)
            send.due_ms = one.wait.due_ms(machine.now_ms)
            machine.due_ms_max = max(machine.due_ms_max, send.due_ms)
        command = end_request(
            PRODUCERS, one.message_id, offset, queue_offset, one.decision, from_check=asked
        )
        try:
            await machine.call(services.transactions.service.end(command))
        except BrokerError as error:
            machine.say("not ended", one.message_id, error)
            return
        machine.say("ended", one.message_id, one.decision.value, asked)
        one.ended_end = machine.log_end
        if one.decision is Operation.COMMIT:
            history.outcome(one.message_id, Outcome.ACKED, one.ended_end)
        history.outcome(one.discarded_id, Outcome.REFUSED, one.ended_end)

    async def mislead(self, services: BrokerServices) -> None:
        """Ends a transaction from another group, or with the opposite of its answered decision."""
        one = self._choose()
        if one is None:
            return
        group, decision = "strangers", Operation.COMMIT
        if one.ended_end and self._machine.chance.random() < 0.7:
            was_committed = one.decision is Operation.COMMIT
            group = PRODUCERS
            decision = Operation.ROLLBACK if was_committed else Operation.COMMIT
        command = end_request(
            group, one.message_id, one.physical_offset, one.queue_offset, decision
        )
        try:
            await self._machine.call(services.transactions.service.end(command))
        except BrokerError:
            return
        sentence = f"{one.message_id} took {decision.value!r} of group {group!r}"
        self._history.events.append(Fault("misled", sentence))

    # --- Check-backs ---

    async def listen(self, services: BrokerServices) -> None:
        """Receives check-backs for the producer until the broker forgets it."""
        clients = services.groups.clients
        stream = clients.open_notices(CLIENT)
        await self._machine.call(clients.heartbeat(Heartbeat(CLIENT, "a:1", [PRODUCERS], [])))
        try:
            while (notice := await self._machine.call(stream.next())) is not None:
                if notice.HasField("check_transaction"):
                    check = notice.check_transaction
                    self._machine.say("asked", check.transaction_id)
                    if self._machine.chance.random() < self._answer_chance:
                        one = self._known[check.transaction_id]
                        await self._end(
                            services, one, check.commit_log_offset, check.queue_offset, asked=True
                        )
        except NoticesEndedError as error:
            self._machine.say("not listening", error)
        finally:
            clients.close_notices(stream)

    # --- The last life ---

    def answer_all(self) -> None:
        """Answers every check-back from now on."""
        self._answer_chance = 1.0

    async def end_all(self, services: BrokerServices) -> None:
        """Ends all open transactions; a commit without an answer must have exactly one end."""
        for one in self._known.values():
            if one.physical_offset >= 0 and not one.ended_end:
                await self._end(services, one, one.physical_offset, one.queue_offset)
            if one.prepared_end and one.decision is Operation.COMMIT and not one.ended_end:
                pair = (one.message_id, one.discarded_id)
                self._history.events.append(ExactlyOne(pair))

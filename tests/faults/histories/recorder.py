"""A recorder that turns the words of workers into a history."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.history import FINAL, Delivery, History, Outcome, body_of
from tests.faults.workers import programs
from tests.faults.workers.store_use import SIZES, Sizes
from tests.faults.workers.zygote import Event, Worker, Zygote


@dataclass
class Recorder:
    """A recorder of events in a history; keeps the rest in `others`.

    `durable_end` is the physical offset below which all is on disk. `ends` has the end in the log
    of each acknowledged message. `flush` is the meaning of acknowledgements, `config` the number
    that is known to be in the configuration file.
    """

    history: History = field(default_factory=History)
    durable_end: int = 0
    flush: FlushDiskType = FlushDiskType.SYNC_FLUSH
    config: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    others: list[Event] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Records all of `events`. Fails the test if a worker died of an error."""
        for event in events:
            self.take_one(event)

    def take_one(self, event: Event) -> None:
        """Records one event."""
        match event:
            case ["begin", sender, [topic, queue_id], message_ids, sizes]:
                bodies = [
                    body_of(name, size) for name, size in zip(message_ids, sizes, strict=True)
                ]
                self.history.begin(sender, QueueKey(topic, queue_id), bodies)
            case ["ack", [_topic, queue_id], queue_offset, message_ids, end]:
                self.history.acked(message_ids, queue_id, queue_offset)
                self.ends.update(dict.fromkeys(message_ids, end))
            case ["refused", message_ids, *_why]:
                self.history.refused(message_ids)
                self.others.append(event)
            case ["durable", end]:
                self.durable_end = max(self.durable_end, end)
            case ["read", reader, [topic, queue_id], found]:
                for offset, message_id, body_hash in found:
                    self.history.seen(
                        Delivery(reader, topic, queue_id, offset, message_id, body_hash)
                    )
            case ["died", trace]:
                raise AssertionError(f"a worker died:\n{trace}")
            case _:
                self.others.append(event)

    def load(
        self, zygote: Zygote, folder: Path, plan: random.Random, name: str, **more: int
    ) -> Worker:
        """Starts a user of the store with any mode of flushes."""
        self.flush = plan.choice(list(FlushDiskType))
        return zygote.start(
            programs.load,
            folder=str(folder),
            flush=self.flush.value,
            name=name,
            seed=plan.getrandbits(32),
            **more,
        )

    def kill(self, worker: Worker) -> None:
        """Kills a worker, and records its last words."""
        worker.kill()
        self.take(worker.events())
        worker.wait()

    def only_durable_is_promised(self) -> None:
        """Drops promises for unflushed messages, which ASYNC_FLUSH may lose at a power cut."""
        for message_id, end in self.ends.items():
            if end > self.durable_end:
                self.history.sends[message_id].outcome = Outcome.UNKNOWN
        # The store may forget what a reader got before the cut.
        self.history.deliveries = [
            delivery
            for delivery in self.history.deliveries
            if delivery.reader == FINAL or self.ends.get(delivery.message_id, 0) <= self.durable_end
        ]

    def read_all(self, zygote: Zygote, folder: Path, sizes: Sizes = SIZES) -> None:
        """Opens the store in a new worker, and records all its messages."""
        worker = zygote.start(programs.read, folder=str(folder), sizes=sizes)
        self.take(worker.events())
        assert worker.wait() == 0
        assert ["closed"] in self.others, "the reader did not come to its end"

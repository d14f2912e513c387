"""Delayed messages to a real broker that is killed, with a history.

A message is due when its level is over, counted from its birth: sender and broker share one clock.
All messages of a sender and queue have one level, so they are delivered in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.client.messages.model import Message, OutgoingMessage
from rocketpy_broker.client.messages.sender import MessageSender
from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.events import Calm
from tests.faults.histories.history import History, body_of, id_of
from tests.support.time_limits import WAIT_SECONDS_MAX

LEVEL, DELAY_MS = 1, 1_000
SENT_TOGETHER = 20
BODY_BYTES = 40
SENDER = "a sender"


@dataclass
class DelayedMessages:
    """The messages of one sender, over all lives of a broker."""

    broker: LocalBroker
    queues: int
    topic: str = "T"
    history: History = field(default_factory=History)
    _serves: threading.Event = field(default_factory=threading.Event)

    # --- The broker's lives ---

    def start(self) -> None:
        """Starts the broker."""
        self.broker.start()
        self._serves_since_ms = _now_ms()
        self._serves.set()

    def kill(self) -> None:
        """Ends the broker as a crash does."""
        self.history.events.append(Calm(self._serves_since_ms, _now_ms()))
        self._serves.clear()
        self.broker.kill()

    # --- Sending ---

    def send(self, count: int) -> None:
        """Sends all messages once each; a failed send is not repeated."""
        for first in range(0, count, SENT_TOGETHER):
            queue = QueueKey(self.topic, first // SENT_TOGETHER % self.queues)
            bodies = [body_of(f"m{first + n}", BODY_BYTES) for n in range(SENT_TOGETHER)]
            self.begin(queue, bodies, _now_ms())
            try:
                self._send(queue, bodies)
            except ClientError:
                # The rest is for the time after the start, which may take seconds.
                self._serves.wait(WAIT_SECONDS_MAX)
            # Sending takes as long as the kills do.
            time.sleep(0.02)

    def begin(self, queue: QueueKey, bodies: list[bytes], now_ms: int) -> None:
        """Records messages that are about to be sent in one request, and their due time."""
        self.history.begin(SENDER, queue, bodies)
        for body in bodies:
            self.history.sends[id_of(body)].due_ms = now_ms + DELAY_MS

    def _send(self, queue: QueueKey, bodies: list[bytes]) -> None:
        messages = [
            OutgoingMessage(body, queue_id=queue.queue_id, delay_level=LEVEL) for body in bodies
        ]
        with BrokerConnection(self.broker.endpoint) as connection:
            list(MessageSender(connection, queue.topic).send(messages))
        self.history.acked([id_of(body) for body in bodies], queue.queue_id, None)

    # --- Reading ---

    def count(self) -> int:
        """Returns the number of distinct delivered messages."""
        return len({message.body for message in self.broker.messages(self.topic)})

    def read(self, reader: str) -> None:
        """Records all delivered messages."""
        for message in self.broker.messages(self.topic):
            self.came(reader, message)

    def came(self, reader: str, message: Message) -> None:
        """Records one message; its level started at its own birth time."""
        send = self.history.sends.get(id_of(message.body))
        if send is not None:
            send.due_ms = max(send.due_ms, _ms(message.born_timestamp) + DELAY_MS)
        queue = QueueKey(message.topic, message.queue_id)
        stored_ms = _ms(message.store_timestamp)
        self.history.delivered(reader, queue, message.queue_offset, message.body, stored_ms)


def lateness_ms(history: History) -> Iterator[int]:
    """Yields the lateness of each message that was due and delivered in one life of the broker."""
    calm = [event for event in history.events if isinstance(event, Calm)]
    came = {delivery.message_id: delivery.at_ms for delivery in history.deliveries}
    for message_id, at_ms in came.items():
        send = history.sends.get(message_id)
        if send is not None and any(
            span.from_ms <= send.due_ms and at_ms < span.to_ms for span in calm
        ):
            yield at_ms - send.due_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

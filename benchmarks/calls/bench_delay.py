"""Lateness of delayed messages: from their due time to their storage in their queue.

The due time is the broker's store time plus the level's delay, as in RocketMQ. The detail adds the
delay of the send: it counts from a message's birth. The broker is a separate process on the same
machine, without other traffic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.harness import Result
from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.client.messages.sender import MessageSender
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model import SCHEDULE_TOPIC

PENDING = 10_000
LEVELS = {1: timedelta(seconds=1), 2: timedelta(seconds=5)}
QUEUES = 8
# Sent one by one, at this pace.
STEADY, STEADY_PER_SECOND = 3_000, 500
BODY = bytes(100)
GOAL_MS = 100


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of messages, in ms, ascending: since due, and since born and delayed."""

    since_due: list[float]
    since_born: list[float]


def measured(broker: LocalBroker, topic: str, count: int, delay: timedelta) -> Lateness:
    """Returns the lateness of `count` messages, after all of them have arrived."""
    deadline = time.monotonic() + 120
    while len(messages := broker.messages(topic)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(messages)} of {count} messages came")
        time.sleep(0.5)
    waiting = broker.messages(SCHEDULE_TOPIC)
    due = {one.msg_id: one.store_timestamp + delay for one in waiting}
    return Lateness(
        sorted(_ms(one.store_timestamp - due[one.msg_id]) for one in messages),
        sorted(_ms(one.store_timestamp - one.born_timestamp - delay) for one in messages),
    )


def _ms(time_: timedelta) -> float:
    return time_.total_seconds() * 1_000


def result(name: str, late: Lateness) -> Result:
    """Returns the 99th percentile. Raises RuntimeError if a message is early."""
    if late.since_due[0] < 0:
        raise RuntimeError(f"a message came {-late.since_due[0]:.0f} ms early")
    at = int(len(late.since_due) * 0.99)
    detail = (
        f"median {late.since_due[len(late.since_due) // 2]:.0f} ms, "
        f"latest {late.since_due[-1]:.0f} ms; since birth p99 {late.since_born[at]:.0f} ms"
    )
    return Result(name, late.since_due[at], "ms", GOAL_MS, at_most=True, detail=detail)


def run_pending(broker: LocalBroker) -> Iterator[Result]:
    """Sends PENDING messages of each level, spread over queues, due at nearly the same time."""
    with BrokerConnection(broker.endpoint) as connection:
        for level in LEVELS:
            broker.create_topic(f"pending-{level}", queues=QUEUES)
            sender = MessageSender(connection, f"pending-{level}")
            for _ in sender.send(OutgoingMessage(BODY, delay_level=level) for _ in range(PENDING)):
                pass
    for level, delay in LEVELS.items():
        late = measured(broker, f"pending-{level}", PENDING, delay)
        name = f"lateness of {PENDING:,} messages pending in level {level}, p99"
        yield result(name, late)


def run_steady(broker: LocalBroker) -> Result:
    """Sends single messages at a steady pace."""
    broker.create_topic("steady", queues=QUEUES)
    with BrokerConnection(broker.endpoint) as connection:
        sender = MessageSender(connection, "steady")
        begin = time.monotonic()
        for number in range(STEADY):
            time.sleep(max(begin + number / STEADY_PER_SECOND - time.monotonic(), 0))
            list(sender.send([OutgoingMessage(BODY, delay_level=1)]))
    name = f"lateness of single messages at {STEADY_PER_SECOND} a second, p99"
    return result(name, measured(broker, "steady", STEADY, LEVELS[1]))


def run() -> Iterator[Result]:
    """Yields both, with the flush of a broker without --data."""
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH.value) as broker:
        yield from run_pending(broker)
        yield run_steady(broker)

"""Open and ended transactions, retries and dead letters, between both brokers and back.

RocketMQ uses the machine's clock, so these tests take some seconds; it takes twenty to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.client.messages.transactions import Transaction
from rocketpy_broker.config import TransactionTimes
from rocketpy_broker.runtime.clock import ManualClock, SystemClock
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import decode_record
from rocketpy_proto.remoting.json_text import parse_json
from tests.broker.delay.test_levels import advance, bodies, visible
from tests.interop.handover.clients import (
    CONSUMERS,
    DEAD_LETTERS,
    PRODUCERS,
    QUEUES,
    RETRIES,
    TOPIC,
    Delivery,
    RocketMQBroker,
    check_clean,
)
from tests.interop.handover.test_timer import SIZES
from tests.interop.remoting.clients import until as wait_until
from tests.interop.rocketmq import ENDS_STORED_AT_ONCE, V4, V5
from tests.support.broker.clients.group_clients import Listener, heartbeat, listening
from tests.support.broker.running_broker import RunningBroker, StartBroker, start_broker, until
from tests.support.broker.transactions import COMMIT, ROLLBACK, Half, end, rounds

__all__ = ["start_broker"]

# A busy machine, too, decides a transaction before its first check, and answers a check before the
# next one: two answers commit twice.
CONF = {
    "transactionTimeOut": 3_000,
    "transactionCheckInterval": 3_000,
    "transactionCheckMax": 1_000,
    **ENDS_STORED_AT_ONCE,
}
TIMES = TransactionTimes(check_max=1_000)
OPEN, TO_COMMIT, TO_ROLL_BACK = "UNKNOW", "COMMIT_MESSAGE", "ROLLBACK_MESSAGE"
# Ten minutes: no turn of RocketMQ's takes as long.
LEVEL_FOR_US, WAITED_MS = 14, 600_000

# The topic's content of each side's messages, and the messages that the group received twice.
OURS = ["committed", "dead", "plain", "retried", "retry for RocketMQ", "retry for us", "to commit"]
THEIRS = [f"its {name}" for name in ("committed", "dead", "retried", "retry for us")]
RETRIED = ["its retried", "retried", "retry for RocketMQ"]


# --- Written by our broker ---


def prepared(endpoint: str, body: str, later: str = OPEN) -> Transaction:
    """Sends a half message; `later` is RocketMQ's producer's answer to a check."""
    message = OutgoingMessage(body.encode(), properties={"later": later})
    with BrokerConnection(endpoint) as connection:
        return transactions.prepare(connection, TOPIC, PRODUCERS, message)


def ended(broker: LocalBroker, body: str, *, commit: bool) -> None:
    """Sends a transaction and ends it."""
    transaction = prepared(broker.endpoint, body)
    with BrokerConnection(broker.endpoint) as connection:
        transactions.end(connection, transaction, commit=commit)


def sent_back(broker: LocalBroker, body: str, level: int) -> None:
    """Sends a message, and sends it back as the group's consumer does."""
    (sent,) = broker.send(TOPIC, body, queue_id=0)
    message = next(one for one in broker.messages(TOPIC) if one.msg_id == sent.msg_id)
    broker.send_back(message, CONSUMERS, delay_level=level)


def delivered(folder: Path, level: int) -> int:
    """Returns a level's delivered offset, as the other side will read it."""
    path = folder / "config" / "delayOffset.json"
    # RocketMQ writes it in place, with numbers for keys.
    if not path.exists() or not (text := path.read_text()).endswith("}"):
        return 0
    table = as_object(as_object(parse_json(text.encode(), "file"))["offsetTable"])
    return int(str(table.get(str(level), 0)))


def write_ours(folder: Path, leave: Callable[[LocalBroker], None]) -> None:
    """Fills a directory with our broker, and leaves it in mid-work."""
    broker = LocalBroker(folder, commit_log_segment_bytes=1 << 30).start()
    broker.create_topic(TOPIC, QUEUES)
    broker.send(TOPIC, "plain")
    sent_back(broker, "retried", 1)
    # The broker saves it after some seconds: only a clean stop saves all deliveries for RocketMQ.
    wait_until(lambda: delivered(folder, 1) >= 1)
    ended(broker, "committed", commit=True)
    ended(broker, "rolled back", commit=False)
    sent_back(broker, "retry for RocketMQ", 3)
    sent_back(broker, "retry for us", LEVEL_FOR_US)
    sent_back(broker, "dead", -1)
    for body, later in (("to roll back", TO_ROLL_BACK), ("open", OPEN), ("to commit", TO_COMMIT)):
        prepared(broker.endpoint, body, later)
    leave(broker)


# --- Continued by RocketMQ ---


def go_on(theirs: RocketMQBroker) -> None:
    """Asserts that its clients get our open transactions' checks and consume each message once."""
    theirs.start_producer()
    theirs.start_consumer()
    again = [Delivery(TOPIC, body, 1) for body in RETRIED[1:]]
    expected = sorted([*(Delivery(TOPIC, body, 0) for body in OURS), *again], key=repr)
    theirs.until(lambda: len(theirs.consumed) >= len(expected))
    # Checks go in the order of half messages: all have been checked several times.
    theirs.until(lambda: theirs.asked.count("open") >= 3)
    assert {*theirs.asked} == {"open", "to commit", "to roll back"}
    assert theirs.bodies(TOPIC) == OURS
    assert sorted(theirs.consumed, key=repr) == expected
    assert theirs.bodies(DEAD_LETTERS) == ["dead"]


def write_theirs(
    theirs: RocketMQBroker, folder: Path, leave: Callable[[RocketMQBroker], None]
) -> None:
    """Fills the directory in the same way with RocketMQ, and leaves it in mid-work."""
    levels = {"its retried": 1, "its retry for us": LEVEL_FOR_US, "its dead": -1}
    for body, level in levels.items():
        theirs.send(body, fail=str(level))
    # Its producer may drop a decision, which is one-way; the next check asks again.
    theirs.send("its committed", first=TO_COMMIT, later=TO_COMMIT)
    theirs.send("its rolled back", first=TO_ROLL_BACK, later=TO_ROLL_BACK)
    for body in ("its to commit", "its to roll back"):
        theirs.send(body, first=OPEN, later=OPEN)
    theirs.until(lambda: theirs.bodies(RETRIES) == RETRIED)
    theirs.until(lambda: theirs.bodies(DEAD_LETTERS) == ["dead", "its dead"])
    theirs.until(lambda: theirs.count(SCHEDULE_TOPIC, LEVEL_FOR_US - 1) == 2)
    theirs.until(lambda: theirs.asked.count("its to roll back") >= 3)
    # A consumer commits the offsets of all messages that it has received.
    received = {*(Delivery(TOPIC, body, 0) for body in THEIRS), Delivery(TOPIC, "its retried", 1)}
    theirs.until(lambda: received <= {*theirs.consumed})
    if leave is RocketMQBroker.kill:
        # It saves the delivered offsets of levels every ten seconds, and repeats the rest itself,
        # too.
        theirs.until(lambda: [delivered(folder, level) for level in (1, 3)] == [2, 1])
    theirs.stop_clients()
    leave(theirs)


# --- Ours again ---


@asynccontextmanager
async def ours(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields our broker, with a clock that the test moves."""
    clock = ManualClock(SystemClock().now_ms())
    flush = FlushDiskType.ASYNC_FLUSH
    async with start_broker(flush, clock=clock, transactions=TIMES, **SIZES) as running:
        yield running


@asynccontextmanager
async def producing(running: RunningBroker) -> AsyncIterator[Listener]:
    """Yields a listening producer of the group."""
    async with listening(running, "ours") as told:
        assert (await heartbeat(running, "ours", producers=[PRODUCERS])).code == 0
        yield told


async def shown(running: RunningBroker, topic: str = TOPIC) -> list[str]:
    """Returns a topic's visible bodies, sorted."""
    found = [await bodies(running, topic, queue_id) for queue_id in range(QUEUES)]
    return sorted(body.decode() for each in found for body in each)


async def end_all(running: RunningBroker, answers: dict[str, int]) -> None:
    """Answers one check of each of these transactions; asserts that no other one is checked."""
    async with producing(running) as told:
        await rounds(running)
        asked = dict([await question(told) for _ in answers])
        assert asked.keys() == answers.keys()
        for body, half in asked.items():
            await answer(running, half, answers[body])
        await rounds(running)
        await asyncio.to_thread(prepared, f"127.0.0.1:{running.ready.port}", "newer")
        await rounds(running)
        body, half = await question(told)
        assert body == "newer"
        await answer(running, half, ROLLBACK)


async def question(told: Listener) -> tuple[str, Half]:
    """Returns the body of the next checked transaction's message, and the transaction."""
    asked = (await told.next()).check_transaction
    half = Half(asked.transaction_id, asked.commit_log_offset, asked.queue_offset)
    return decode_record(asked.record).record.body.decode(), half


async def answer(running: RunningBroker, half: Half, resolution: int) -> None:
    assert await end(running, half, resolution, group=PRODUCERS, from_check=True) == 0


async def wait_for_retries(running: RunningBroker, expected: list[str]) -> None:
    """Asserts that all waiting messages are delivered, and nothing else."""
    running.clock.advance(WAITED_MS)
    await until(lambda: visible(running, RETRIES, 0) >= len(expected))
    await advance(running, 1_000)
    assert await shown(running, RETRIES) == sorted(expected)


ORDERS = [
    pytest.param(V5, LocalBroker.kill, RocketMQBroker.stop, id=f"{V5}, killed and stopped"),
    pytest.param(V5, LocalBroker.stop, RocketMQBroker.kill, id=f"{V5}, stopped and killed"),
    pytest.param(V4, LocalBroker.kill, RocketMQBroker.stop, id=f"{V4}, killed and stopped"),
]


@pytest.mark.parametrize(("version", "leave_ours", "leave_theirs"), ORDERS)
async def test_t05_rocketmq_goes_on_with_our_transactions_and_retries_and_we_with_its_own(
    start_broker: StartBroker,
    tmp_path: Path,
    version: str,
    leave_ours: Callable[[LocalBroker], None],
    leave_theirs: Callable[[RocketMQBroker], None],
) -> None:
    write_ours(tmp_path, leave_ours)
    check_clean(tmp_path)
    with RocketMQBroker(tmp_path, version, **CONF) as theirs:
        go_on(theirs)
        write_theirs(theirs, tmp_path, leave_theirs)
    check_clean(tmp_path)
    async with ours(start_broker) as running:
        assert await shown(running) == sorted(OURS + THEIRS)
        if leave_theirs is RocketMQBroker.stop:
            offsets = running.broker.services.offsets.committed
            consumed = [offsets.query(CONSUMERS, TOPIC, queue_id) for queue_id in range(QUEUES)]
            assert sum(max(offset, 0) for offset in consumed) == len(OURS + THEIRS)
            assert offsets.query(CONSUMERS, RETRIES, 0) == len(RETRIED)
        await end_all(
            running, {"open": COMMIT, "its to commit": COMMIT, "its to roll back": ROLLBACK}
        )
        await wait_for_retries(running, [*RETRIED, "its retry for us", "retry for us"])
        assert await shown(running) == sorted([*OURS, *THEIRS, "open", "its to commit"])
        assert await shown(running, DEAD_LETTERS) == ["dead", "its dead"]
    check_clean(tmp_path)
    if leave_theirs is RocketMQBroker.stop:
        hand_back(tmp_path, version)


def hand_back(folder: Path, version: str) -> None:
    """Asserts that RocketMQ repeats nothing that we have ended and delivered."""
    with RocketMQBroker(folder, version, **CONF) as theirs:
        theirs.start_consumer()
        theirs.start_producer()
        theirs.send("last", first=OPEN, later=TO_COMMIT)
        expected = [
            *(Delivery(TOPIC, body, 0) for body in ("its to commit", "last", "open")),
            *(Delivery(TOPIC, body, 1) for body in ("its retry for us", "retry for us")),
        ]
        theirs.until(lambda: len(theirs.consumed) >= len(expected))
        assert {*theirs.asked} == {"last"}
        assert sorted(theirs.consumed, key=repr) == sorted(expected, key=repr)
        theirs.kill()
    check_clean(folder)


async def test_t05_what_rocketmq_committed_and_could_not_note_is_not_committed_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Relies on the message, which names its transaction. No message records a rollback."""
    with RocketMQBroker(tmp_path, transactionOpBatchInterval=3_600_000) as theirs:
        theirs.create_topic()
        theirs.start_producer()
        theirs.send("committed", first=TO_COMMIT)
        theirs.send("rolled back", first=TO_ROLL_BACK)
        theirs.send("to commit", first=OPEN)
        theirs.until(lambda: theirs.bodies(TOPIC) == ["committed"])
        theirs.kill()
    check_clean(tmp_path)
    async with ours(start_broker) as running:
        await end_all(running, {"rolled back": ROLLBACK, "to commit": COMMIT})
        assert await shown(running) == ["committed", "to commit"]
    check_clean(tmp_path)

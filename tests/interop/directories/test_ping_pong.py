"""Both sides in turn over one directory, with random messages and random ends."""

from __future__ import annotations

import random

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.interop.rocketmq import V4, V5, V5_3, Message, RocketMQStore
from tests.interop.stores import MakeStores, Stores
from tests.support.store.stores import crash

ROUNDS = 6
LETTERS = "abcXYZ 0189äßé中文😀\t'\"\\{}=@#%"
QUEUES = [QueueKey(topic, number) for topic in ("TopicA", "B-2", "%RETRY%g") for number in range(3)]


def text(dice: random.Random, length_max: int) -> str:
    """Returns at least one character, and none that separates properties."""
    return "".join(dice.choices(LETTERS, k=dice.randint(1, length_max)))


def message(dice: random.Random) -> Message:
    """Returns a message: up to 3,000 bytes, mostly short, and any mix of properties."""
    size = dice.choice((0, 1, dice.randint(2, 90), dice.randint(2, 90), dice.randint(100, 3000)))
    properties = {
        "stadt " + text(dice, 5): text(dice, 40) for _ in range(dice.choice((0, 0, 1, 3)))
    }
    if dice.random() < 0.5:
        properties["TAGS"] = text(dice, 20)
    if dice.random() < 0.5:
        properties["KEYS"] = text(dice, 30)
    return Message(dice.randbytes(size), properties)


def our_turn(stores: Stores, dice: random.Random) -> None:
    """Reads all, appends blocks of a few messages, and stops or crashes."""
    store = stores.open_ours()
    stores.check_ours(store)
    for _ in range(dice.randint(1, 25)):
        block = [message(dice)]
        while sum(len(one.body) for one in block) < 1500 and dice.random() < 0.7:
            block.append(message(dice))
        stores.append_ours(store, dice.choice(QUEUES), block)
    dice.choice((crash, MessageStore.close))(store)


def their_turn(stores: Stores, dice: random.Random) -> None:
    """Reads and writes in the same way with RocketMQ, one by one and in batches."""
    with stores.rocketmq() as store:
        stores.check_rocketmq(store)
        for _ in range(dice.randint(1, 25)):
            queue = dice.choice(QUEUES)
            if dice.random() < 0.3:
                # RocketMQ refuses a batch with an empty body in it.
                batch = [Message(dice.randbytes(9)) for _ in range(dice.randint(1, 9))]
                stores.put_batch_rocketmq(store, queue, batch)
            else:
                stores.put_rocketmq(store, queue, [message(dice) for _ in range(3)])
        dice.choice((RocketMQStore.kill, RocketMQStore.stop))(store)


@pytest.mark.parametrize(
    ("version", "flush", "seed"),
    [
        *((V5, flush, seed) for flush in FlushDiskType for seed in range(3)),
        *((old, flush, seed) for old in (V5_3, V4) for seed, flush in enumerate(FlushDiskType)),
    ],
)
def test_f14_both_sides_in_turn_lose_nothing(
    new_stores: MakeStores, flush: FlushDiskType, seed: int
) -> None:
    dice = random.Random(seed)
    # A queue file of 7 units and a segment for two large messages: borders are frequent.
    stores = new_stores(flush, segment_bytes=8192, queue_file_bytes=140)
    for _ in range(ROUNDS):
        turn = dice.choice((our_turn, their_turn))
        turn(stores, dice)
        if turn is their_turn and stores.version == V4:
            # After a kill during a queue file's creation, 4.9 starts only after a start of ours.
            our_turn(stores, dice)
    our_turn(stores, dice)
    stores.check_both_read_the_same()

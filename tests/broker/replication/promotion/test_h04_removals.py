"""H04: the last removals of an old master are undone: its new master does not know them."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.values import QueueBounds, QueueKey
from tests.broker.replication.pair import MASTER, Pair, pair, slave_config
from tests.broker.replication.slaves.test_h03_slave import bodies
from tests.support.broker.running_broker import StartBroker

DELETED, EMPTIED, KEPT = TOPICS = ("deleted", "emptied", "kept")


@pytest.mark.parametrize("later", [[], [b"three"]])
async def test_h04_topics_that_the_old_master_removed_last_are_back_on_it(
    start_broker: StartBroker, later: list[bytes]
) -> None:
    async with pair(start_broker) as both:
        for topic in TOPICS:
            await both.master.create_topic(topic)
            await both.master.append(topic, 0, b"one", b"two")
        await both.same()
        await both.synced()
    async with start_broker(folder="master", replication=MASTER) as old:
        await old.broker.services.admin.admin.delete_topic(DELETED)
        await old.broker.services.flush.store_files.empty_topic(EMPTIED)
        assert [await bodies(old, topic) for topic in (EMPTIED, KEPT)] == [[], [b"one", b"two"]]
    async with start_broker(folder="slave", replication=MASTER, remoting_port=0) as new:
        for topic in TOPICS if later else ():
            await new.append(topic, 0, *later)
        for _ in range(2):
            async with start_broker(
                folder="master", replication=slave_config(new), clock=new.clock, remoting_port=0
            ) as old:
                both = Pair(new, old)
                await both.synced()
                await both.same()
                store = old.broker.store
                assert store.topic_marks == ({}, {})
                for topic in TOPICS:
                    found = store.range_of(QueueKey(topic, 0))
                    assert found == QueueBounds(0, 2 + len(later))
                    assert await bodies(old, topic) == [b"one", b"two", *later]


async def test_h04_a_slave_keeps_its_masters_removals(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        for topic in TOPICS:
            await both.master.create_topic(topic)
            await both.master.append(topic, 0, b"one", b"two")
        await both.synced()
        await both.master.broker.services.admin.admin.delete_topic(DELETED)
        await both.master.broker.services.flush.store_files.empty_topic(EMPTIED)
        await both.synced()
        marks = both.master.broker.store.topic_marks
        assert both.slave.broker.store.topic_marks == marks
    async with pair(start_broker) as both:
        await both.synced()
        assert both.slave.broker.store.topic_marks == marks
        assert await bodies(both.slave, EMPTIED) == []

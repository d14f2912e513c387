"""RocketMQ deletes a topic between two turns of ours."""

from __future__ import annotations

from rocketpy_broker.store.values import QueueKey
from tests.interop.stores import Stores, messages

A0 = QueueKey("TopicA", 0)
B0 = QueueKey("TopicB", 0)


def test_f14_a_topic_that_rocketmq_deleted_does_not_come_back(stores: Stores) -> None:
    store = stores.ours()
    store.open()
    stores.append_ours(store, A0, messages(10))
    stores.append_ours(store, B0, messages(10))
    store.close()
    with stores.rocketmq() as theirs:
        theirs.ask("deleteTopic", topic="TopicA")
        theirs.stop()
    del stores.written[A0]
    again = stores.ours()
    again.open()
    stores.check_ours(again)
    again.close()

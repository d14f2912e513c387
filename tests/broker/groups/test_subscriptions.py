"""Heartbeats that change a group's subscriptions, and the notices of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.groups.clients.subscriptions import Subscription, merge
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.support.broker.clients.group_clients import (
    consumer,
    heartbeat,
    listening,
    subscription,
    subscriptions,
    unregister,
)
from tests.support.broker.running_broker import RunningBroker


def of(topic: str, version: int, text: str = "*") -> Subscription:
    return Subscription(topic, "TAG", text, version)


def test_g02_new_newer_and_dropped_subscriptions_are_merged() -> None:
    old = {each.topic: each for each in (of("A", 5, "old"), of("B", 5, "old"), of("C", 5, "old"))}
    merged = merge(old, [of("A", 6, "new"), of("B", 4, "late"), of("D", 1, "new")])
    assert merged.table == {
        "A": of("A", 6, "new"),
        "B": of("B", 5, "old"),
        "D": of("D", 1, "new"),
    }
    assert merged.is_changed


def test_g02_an_equal_version_changes_nothing() -> None:
    merged = merge({"A": of("A", 5, "old")}, [of("A", 5, "other")])
    assert merged.table == {"A": of("A", 5, "old")}
    assert not merged.is_changed


def test_g02_a_newer_text_is_no_change_of_topics() -> None:
    assert not merge({"A": of("A", 5)}, [of("A", 6, "new")]).is_changed
    assert merge({"A": of("A", 5)}, []).is_changed
    assert merge({}, [of("A", 5)]).is_changed
    assert not merge({}, []).is_changed


topics = st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 3))


@given(old=topics, new=topics)
def test_g02_the_greatest_version_of_each_named_topic_is_kept(
    old: dict[str, int], new: dict[str, int]
) -> None:
    known = {topic: of(topic, old[topic], "old") for topic in old}
    merged = merge(known, [of(topic, new[topic], "new") for topic in new])
    assert merged.is_changed == (old.keys() != new.keys())
    assert merged.table == {
        topic: of(topic, new[topic], "new")
        if topic not in old or new[topic] > old[topic]
        else known[topic]
        for topic in new
    }


async def test_g02_every_member_is_told_of_topics_that_come_and_go(running: RunningBroker) -> None:
    async with listening(running, "c1") as first, listening(running, "c2") as second:
        await heartbeat(running, "c1", consumer("g", "T"))
        assert await first.changed() == "g"
        await heartbeat(running, "c2", consumer("g", "T"))
        assert [await first.changed(), await second.changed()] == ["g", "g"]
        await heartbeat(running, "c2", consumer("g", "T", "U"))
        assert [await first.changed(), await second.changed()] == ["g", "g"]
        await heartbeat(running, "c1", consumer("g", "U"))
        assert [await first.changed(), await second.changed()] == ["g", "g"]
        assert await subscriptions(running, "g") == {"U": (1, "*")}


async def test_g02_a_newer_text_shows_at_once_and_nobody_is_told(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", consumer("g", subscription("T", 1, "a")))
        assert await told.changed() == "g"
        await heartbeat(running, "c1", consumer("g", subscription("T", 2, "b")))
        assert await subscriptions(running, "g") == {"T": (2, "b")}
        await heartbeat(running, "c1", consumer("g", subscription("T", 1, "a")))
        assert await subscriptions(running, "g") == {"T": (2, "b")}
        # The next notice is that of another group: there was none between.
        await heartbeat(running, "c1", consumer("marker"))
        assert await told.changed() == "marker"


async def test_g02_a_repeated_heartbeat_tells_nobody(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        for _ in range(3):
            await heartbeat(running, "c1", consumer("g", "T"))
        assert await told.changed() == "g"
        await heartbeat(running, "c1", consumer("marker"))
        assert await told.changed() == "marker"


async def test_g02_broadcasting_groups_are_not_told(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        loud = consumer("loud", "T", message_model=groups_pb2.BROADCASTING)
        await heartbeat(running, "c1", loud)
        await heartbeat(running, "c2", loud)
        await unregister(running, "c2", consumer="loud")
        await heartbeat(running, "c1", consumer("marker"))
        assert await told.changed() == "marker"


async def test_g02_a_group_that_wants_no_notices_gets_none_of_who_joins_and_leaves(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        config = SubscriptionGroupConfig("calm", notify_consumer_ids_changed_enable=False)
        await running.broker.services.groups.configs.update(config)
        await heartbeat(running, "c1", consumer("calm"))
        await heartbeat(running, "c2", consumer("calm"))
        await unregister(running, "c2")
        await heartbeat(running, "c1", consumer("marker"))
        assert await told.changed() == "marker"


async def test_g02_a_group_whose_configuration_was_deleted_is_told_all_the_same(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", consumer("g"))
        await heartbeat(running, "c2", consumer("g"))
        assert await told.changed() == "g"
        await running.broker.services.groups.configs.delete("g")
        await unregister(running, "c2", consumer="g")
        assert await told.changed() == "g"
        assert "g" not in running.broker.services.groups.configs

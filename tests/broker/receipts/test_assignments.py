"""Queues that the broker assigns to the members of a group, as RocketMQ's strategies do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.errors import ClientsFullError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.groups.clients.consumers import ConsumerData
from rocketpy_broker.services.groups.clients.registry import Heartbeat
from rocketpy_broker.services.receipts.assignment.modes import (
    POP,
    MessageRequestMode,
    MessageRequestModes,
)
from rocketpy_broker.services.receipts.assignment.service import AVERAGELY, BY_CIRCLE
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from tests.support.broker.pops import GROUP, TOPIC, services
from tests.support.broker.running_broker import RunningBroker, StartBroker

MEMBERS = ["c0", "c1", "c2"]


async def join(running: RunningBroker) -> None:
    data = ConsumerData(
        *(
            GROUP,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ),
        [],
    )
    for member in MEMBERS:
        heartbeat = Heartbeat(member, "127.0.0.1:1", [], [data])
        await running.broker.services.groups.clients.heartbeat(heartbeat)


def assigned(
    running: RunningBroker, strategy: str = AVERAGELY, topic: str = TOPIC
) -> list[list[int]]:
    """Returns the queues of each member."""
    assign = services(running).assignments.assign
    found = [assign(topic, GROUP, each, strategy, is_broadcasting=False) for each in MEMBERS]
    return [[*each.queue_ids] for each in found if each is not None]


async def test_members_share_queues_by_strategy_and_mode(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic(TOPIC, 7)
        await running.create_topic("few", 2)
        assert assigned(running) == []
        await join(running)
        assert assigned(running) == [[0, 1, 2], [3, 4], [5, 6]]
        assert assigned(running, BY_CIRCLE) == [[0, 3, 6], [1, 4], [2, 5]]
        assert assigned(running, "MACHINE_ROOM") == []
        assert assigned(running, topic="none") == []
        assert assigned(running, topic="few") == [[0], [1], []]
        assign = services(running).assignments.assign
        broadcast = assign(TOPIC, GROUP, "c0", AVERAGELY, is_broadcasting=True)
        assert broadcast is not None
        assert [*broadcast.queue_ids] == [0, 1, 2, 3, 4, 5, 6]
        for topic in (TOPIC, "few"):
            await services(running).modes.set(topic, GROUP, MessageRequestMode(POP, 1))
        assert assigned(running) == [[0, 1, 2, 3, 4], [3, 4, 5, 6], [0, 1, 2, 5, 6]]
        assert assigned(running, topic="few") == [[0], [1], [0]]
        await services(running).modes.set(TOPIC, GROUP, MessageRequestMode(POP, 1 << 30))
        assert assigned(running) == [[0, 1, 2, 3, 4, 5, 6]] * 3


async def test_the_number_of_modes_is_limited(tmp_path: Path) -> None:
    modes = MessageRequestModes(tmp_path, ManualClock(), 2)
    for group in ("a", "b", "b"):
        await modes.set(TOPIC, group, MessageRequestMode(POP))
    with pytest.raises(ClientsFullError):
        await modes.set("U", "c", MessageRequestMode(POP))
    assert modes.find("U", "c").mode == "PULL"
    again = MessageRequestModes(tmp_path, ManualClock(), 2)
    again.load()
    assert again.find(TOPIC, "b") == MessageRequestMode(POP)
    for each in (modes, again):
        each.saver.close()

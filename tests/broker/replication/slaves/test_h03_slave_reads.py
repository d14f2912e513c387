"""H03: reads from a slave, and the broker that it suggests for the next one."""

from __future__ import annotations

import asyncio

from rocketpy_proto.model.codes import ResponseCode
from tests.broker.replication.slaves.own_slave import slave
from tests.support.blocks import bodies_of
from tests.support.broker.running_broker import StartBroker


async def test_h03_a_slave_serves_pulls_and_suggests_as_its_master_does(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as master:
        await master.create_topic("T")
        await master.append("T", 0, b"a", b"b")
    for is_suggesting, expected in ((False, [0, 0]), (True, [0, 1])):
        suggested = []
        for ratio in (40, 0):
            settings = {
                "slave_read_enable": is_suggesting,
                "access_message_in_memory_max_ratio": ratio,
            }
            async with slave(start_broker, 2, **settings) as running:
                [answer] = await running.pull(topic="T")
                assert bodies_of(answer.records, answer.record_sizes) == [b"a", b"b"]
                suggested.append(answer.suggested_broker_id)
        assert suggested == expected


async def test_h03_a_reader_beyond_the_end_of_a_slave_keeps_its_offset(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as master:
        await master.create_topic("T")
        await master.append("T", 0, b"a", b"b")
        [answer] = await master.pull(topic="T", offset=7, consumer_group="g")
        assert (answer.status.code, answer.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 2)
    async with slave(start_broker) as running:
        end = running.broker.store.positions().log_end
        for queue_id in (0, 1):
            place = {"topic": "T", "queue_id": queue_id, "offset": 7}
            for more in ({}, {"consumer_group": "g"}, {"offset_end": 9}):
                [answer] = await running.pull(**place, **more)
                assert answer.status.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                assert answer.next_offset == 7
            # A call that may wait does so, for the slave's lag is short.
            held = asyncio.ensure_future(running.pull(**place, wait_ms_max=5_000))
            await running.held(1)
            running.clock.advance(5_000)
            [answer] = await held
            assert answer.status.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.next_offset == 7
        assert running.broker.store.positions().log_end == end


async def test_h03_less_of_a_slaves_memory_counts_for_the_log(start_broker: StartBroker) -> None:
    async with slave(start_broker, 7) as running:
        found = running.broker.services.admin.settings.properties()
        assert found["accessMessageInMemoryMaxRatio"] == "30"
        assert (found["brokerRole"], found["brokerId"]) == ("SLAVE", "7")
    async with slave(start_broker, access_message_in_memory_max_ratio=5) as running:
        assert running.broker.services.admin.settings.config.memory_ratio_percent == 0

"""RocketMQ's metrics of messages, scraped from a real broker after known traffic."""

from __future__ import annotations

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2, retry_pb2, retry_pb2_grpc
from tests.broker.metrics.scrape import scrape
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, ROLLBACK, end, prepare

NORMAL = {"topic": "T", "message_type": "normal", "is_system": "false"}


async def commit(running: RunningBroker, group: str, offset: int, queue_id: int = 0) -> None:
    request = broker_pb2.CommitOffsetsRequest(
        consumer_group=group,
        offsets=[broker_pb2.CommittedOffset(topic="T", queue_id=queue_id, offset=offset)],
    )
    response = await running.data.CommitOffsets(request)
    assert response.status.code == 0, response.status.remark


async def enter(running: RunningBroker, group: str) -> None:
    """Registers a client in a consumer group and in a producer group."""
    request = groups_pb2.HeartbeatRequest(
        client_id="client",
        producer_groups=["producers"],
        consumers=[
            groups_pb2.ConsumerData(
                consumer_group=group,
                consume_type=groups_pb2.CONSUME_PASSIVELY,
                message_model=groups_pb2.CLUSTERING,
                consume_from_where=groups_pb2.CONSUME_FROM_FIRST_OFFSET,
            )
        ],
    )
    response = await running.groups.Heartbeat(request)
    assert response.status.code == 0, response.status.remark


async def update_group(running: RunningBroker, group: str, *, create_only: bool = False) -> int:
    """Creates or changes a consumer group as an operator; returns the response code."""
    config = groups_pb2.GroupConfig(consumer_group=group)
    request = groups_pb2.UpdateGroupRequest(config=config, create_only=create_only)
    response: groups_pb2.UpdateGroupResponse = await running.groups.UpdateGroup(request)
    return response.status.code


async def test_g01_clients_are_counted_by_group(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await enter(running, "g")
        found = await scrape(running)
    assert found.sum("rocketmq_consumer_connections", consumer_group="g", consume_mode="push") == 1
    assert found.sum("rocketmq_producer_connections", protocol_type="grpc") == 1


async def test_s13_messages_in_are_counted_by_topic_and_type(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        first = wire_block("T", [b"a" * 100, b"b" * 300])
        await running.append_block("T", 0, first)
        await running.append_block("T", 1, wire_block("T", [b"c" * 5_000]))
        found = await scrape(running)
    assert found.value("rocketmq_messages_in_total", **NORMAL) == 3
    assert found.value("rocketmq_throughput_in_total", **NORMAL) > 5_400
    below_1_kib = found.value("rocketmq_message_size_bucket", le="1024.0", **NORMAL)
    assert (below_1_kib, found.value("rocketmq_message_size_count", **NORMAL)) == (1, 2)
    assert found.types["rocketmq_messages_in"] == "counter"
    assert found.types["rocketmq_message_size"] == "histogram"


async def test_s13_sizes_are_counted_for_the_type_that_a_topic_has_by_now(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"1")
        config = admin_pb2.TopicConfig(topic="T", attributes={"+message.type": "FIFO"})
        await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
        block = wire_block("T", [b"2"], properties={"__SHARDINGKEY": ["key"]})
        assert (await running.append_block("T", 0, block)).status.code == 0
        found = await scrape(running)
    counted = "rocketmq_message_size_count"
    assert found.value(counted, **NORMAL) == 1
    assert found.value(counted, **NORMAL | {"message_type": "fifo"}) == 1


async def test_s13_what_waits_is_counted_as_delayed_where_it_waits(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        block = wire_block("T", [b"later"], properties={"DELAY": ["2"]})
        await running.append_block("T", 0, block)
        waiting = await scrape(running)
        running.clock.advance(5_000)
        queue = QueueKey("T", 0)
        await until(lambda: running.broker.store.range_of(queue).max_offset == 1)
        found = await scrape(running)
    where = {"topic": "SCHEDULE_TOPIC_XXXX", "message_type": "delay", "is_system": "true"}
    assert waiting.value("rocketmq_messages_in_total", **where) == 1
    assert waiting.value("rocketpy_delayed_messages", level="2") == 1
    assert found.value("rocketpy_delayed_messages", level="2") == 0
    assert found.value("rocketmq_timer_dequeue_total", topic="T") == 1
    bucket = found.value("rocketmq_delay_message_latency_seconds_bucket", topic="T", le="60.0")
    assert bucket == 1


async def test_g01_lag_counts_what_is_not_committed_and_how_old_it_is(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T", queues=2)
        await running.append("T", 0, b"1", b"2", b"3")
        running.clock.advance(10_000)
        await running.append("T", 0, b"4")
        await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
        await commit(running, "g", 1)
        found = await scrape(running)
        await commit(running, "g", 4)
        over = await scrape(running)
    labels = {"consumer_group": "g", "topic": "T", "is_retry": "false", "is_system": "false"}
    assert found.value("rocketmq_consumer_lag_messages", **labels) == 3
    pulled = found.value("rocketmq_consumer_inflight_messages", **labels)
    ready = found.value("rocketmq_consumer_ready_messages", **labels)
    assert pulled + ready == 3
    assert found.value("rocketmq_consumer_lag_latency_milliseconds", **labels) == 11_001
    assert over.value("rocketmq_consumer_lag_messages", **labels) == 0
    assert over.value("rocketmq_consumer_lag_latency_milliseconds", **labels) == 0
    out = {"topic": "T", "consumer_group": "g", "is_system": "false"}
    assert found.value("rocketmq_messages_out_total", **out) == pulled + 1


async def test_t02_ends_of_transactions_are_counted_once(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        kept, dropped, _left_open = [await prepare(running, each) for each in ("k", "d", "l")]
        waiting = await scrape(running)
        for _ in range(2):
            assert await end(running, kept, COMMIT) == 0
            assert await end(running, dropped, ROLLBACK) == 0
        found = await scrape(running)
    assert waiting.value("rocketmq_half_messages") == 3
    assert found.value("rocketmq_half_messages") == 1
    assert found.value("rocketmq_commit_messages_total", topic="T") == 1
    assert found.value("rocketmq_rollback_messages_total", topic="T") == 1
    assert found.value("rocketmq_finish_message_latency_milliseconds_count", topic="T") == 1


async def test_r02_dead_letters_are_counted_for_their_group(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"bad")
        await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
        stub = retry_pb2_grpc.RetryStub(running.channel)
        message = retry_pb2.MessageToSendBack(commit_log_offset=0, delay_level=-1)
        request = retry_pb2.SendBackRequest(consumer_group="g", messages=[message])
        assert (await stub.SendBack(request)).status.code == 0
        found = await scrape(running)
    assert found.sum("rocketmq_send_to_dlq_messages_total", consumer_group="g") == 1
    assert not any("%DLQ%" in str(each) for each in found.samples["rocketmq_messages_in_total"])


async def test_s13_a_topic_that_is_deleted_takes_its_series_along(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"gone")
        assert (await scrape(running)).value("rocketmq_message_size_count", **NORMAL) == 1
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        found = await scrape(running)
    assert not found.sum("rocketmq_message_size_count", topic="T")


async def test_c01_an_operators_changes_of_groups_are_counted(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        assert await update_group(running, "g", create_only=True) == 0
        assert await update_group(running, "g") == 0
        assert await update_group(running, "g", create_only=True) != 0
        found = await scrape(running)
    counted = "rocketmq_consumer_group_create_execution_time_milliseconds_count"
    assert found.value(counted, invocation_status="success") == 2
    assert found.value(counted, invocation_status="failure") == 1

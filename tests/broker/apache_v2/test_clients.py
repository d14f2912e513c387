"""Settings, heartbeats, telemetry streams and terminations of clients."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.runtime.scheduler import running_scheduler
from rocketpy_broker.server.apache_v2.clients import SETTINGS_BYTES_OF_CONNECTION
from rocketpy_broker.server.apache_v2.servicers import telemetry_servicer
from rocketpy_broker.server.calls.guard import IDLE_STREAMS_OF_CONNECTION
from rocketpy_broker.server.calls.incomplete_requests import UNFINISHED_MS_MAX
from rocketpy_broker.services.call_memory import PARTS_FACTOR
from rocketpy_broker.services.groups.clients.producers import producers_of
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from rocketpy_proto.model.codes import Language
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.model.consumers import ConsumeType
from tests.support.blocks import wire_block
from tests.support.broker.clients.apache_client import (
    ApacheClient,
    consuming,
    message,
    producing,
    topic,
)
from tests.support.broker.running_broker import StartBroker, another_connection, until

LIST = "customized_backoff"
# Of a later version of the interface.
LATER: Any = 99


def members(apache: ApacheClient, group: str) -> list[str]:
    registry = apache.running.broker.services.groups.clients
    return [each.client_id for each in registry.connections(producers_of(group))]


def known(apache: ApacheClient) -> int:
    return len(apache.running.broker.services.apache_clients)


async def test_a_producer_gets_its_settings_with_the_broker_s_values(apache: ApacheClient) -> None:
    sent = producing("t", "u")
    answer = await apache.settle(sent)
    assert answer.status.code == v2.OK
    settings = answer.settings
    assert settings.client_type == v2.PRODUCER
    assert settings.access_point == sent.access_point
    assert settings.user_agent == sent.user_agent
    assert settings.publishing.topics == sent.publishing.topics
    assert settings.publishing.max_body_size == 4_194_304
    assert settings.publishing.validate_message_type
    policy = settings.backoff_policy
    assert policy.max_attempts == 3
    assert policy.exponential_backoff.initial.ToMilliseconds() == 10
    assert policy.exponential_backoff.max.ToMilliseconds() == 1_000
    assert policy.exponential_backoff.multiplier == 2
    assert settings.HasField("metric")
    assert not settings.metric.on


@pytest.mark.parametrize(
    ("language", "strategy"),
    [
        *((name, LIST) for name in ("JAVA", "PYTHON", "GO", "RUST", "CPP", "unknown")),
        ("HTTP", "exponential_backoff"),
        ("NODE_JS", "exponential_backoff"),
    ],
)
async def test_a_consumer_gets_the_backoff_that_its_sdk_understands(
    language: str, strategy: str, apache: ApacheClient
) -> None:
    apache.language = language
    sent = consuming("g", "t", expression="a || b")
    settings = (await apache.settle(sent)).settings
    assert settings.backoff_policy.WhichOneof("strategy") == strategy
    assert settings.backoff_policy.max_attempts == 17
    subscription = settings.subscription
    assert subscription.group == topic("g")
    assert subscription.subscriptions == sent.subscription.subscriptions
    assert subscription.receive_batch_size == 32
    assert subscription.long_polling_timeout.seconds == 20
    assert subscription.HasField("fifo")
    assert not subscription.fifo
    if strategy == LIST:
        delays = [each.seconds for each in settings.backoff_policy.customized_backoff.next]
        assert (len(delays), delays[:5], delays[-1]) == (18, [1, 5, 10, 30, 60], 7_200)


async def test_settings_of_an_orderly_group_say_so(apache: ApacheClient) -> None:
    config = SubscriptionGroupConfig("g", consume_message_orderly=True, retry_max_times=4)
    await apache.running.broker.services.groups.configs.update(config)
    settings = (await apache.settle(consuming("g", "t"))).settings
    assert settings.subscription.fifo
    assert settings.backoff_policy.max_attempts == 5


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (v2.Settings(client_type=v2.PRODUCER), v2.BAD_REQUEST),
        (
            v2.Settings(client_type=v2.PUSH_CONSUMER, publishing=v2.Publishing()),
            v2.UNRECOGNIZED_CLIENT_TYPE,
        ),
        (consuming("g", "t", client_type=v2.LITE_PUSH_CONSUMER), v2.UNRECOGNIZED_CLIENT_TYPE),
        (consuming("g", "t", client_type=LATER), v2.UNRECOGNIZED_CLIENT_TYPE),
        (producing("a.b"), v2.ILLEGAL_TOPIC),
        (consuming("g", "a.b"), v2.ILLEGAL_TOPIC),
        (consuming("g.h", "t"), v2.ILLEGAL_CONSUMER_GROUP),
        (consuming("g" * 121, "t"), v2.ILLEGAL_CONSUMER_GROUP),
        (consuming("CID_RMQ_SYS_x", "t"), v2.ILLEGAL_CONSUMER_GROUP),
        (consuming("g", "t", expression=" || "), v2.BAD_REQUEST),
        (
            v2.Settings(
                client_type=v2.PRODUCER,
                publishing=v2.Publishing(),
                client_properties={"rocketmq.x": "1"},
            ),
            v2.INVALID_CLIENT_PROPERTIES,
        ),
    ],
)
async def test_illegal_settings_end_the_stream_with_their_code(
    settings: v2.Settings, code: v2.Code, apache: ApacheClient
) -> None:
    async with apache.telemetry() as call:
        await call.write(TelemetryCommand(settings=settings))
        answer = await call.read()
        assert answer.status.code == code, answer.status.message
        assert not answer.HasField("settings")
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    assert known(apache) == 0


async def test_headers_come_before_the_client_has_written_anything(apache: ApacheClient) -> None:
    async with apache.telemetry() as call:
        await call.initial_metadata()
        await call.write(TelemetryCommand(settings=producing("t")))
        assert (await call.read()).status.code == v2.OK


async def test_a_stream_without_a_client_id_ends_with_a_code(apache: ApacheClient) -> None:
    apache.client_id = ""
    async with apache.telemetry() as call:
        assert (await call.read()).status.code == v2.CLIENT_ID_REQUIRED
        assert await call.read() is grpc.aio.EOF


async def test_a_stream_that_its_client_closes_ends_with_ok(apache: ApacheClient) -> None:
    async with apache.telemetry(producing("t")) as call:
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_an_idle_stream_has_no_time_limit_for_its_first_settings(
    apache: ApacheClient,
) -> None:
    """Opens a stream as the SDK for Python does minutes before it sends settings again."""
    async with apache.telemetry() as call:
        await call.initial_metadata()
        unfinished = apache.running.broker.server.incomplete_requests
        apache.running.clock.advance(10 * UNFINISHED_MS_MAX)
        assert (await apache.heartbeat(v2.PRODUCER)).code == v2.OK
        assert unfinished.ended == 0
        await call.write(TelemetryCommand(settings=producing("t")))
        assert (await call.read()).status.code == v2.OK


async def test_streams_beyond_the_limit_of_a_connection_are_refused(apache: ApacheClient) -> None:
    limits = apache.running.broker.server.guard.idle_streams
    clients = [replace(apache, client_id=f"c{number}") for number in range(3)]
    async with clients[0].telemetry(producing("t")), clients[1].telemetry(producing("t")) as second:
        (connection,) = limits._shares._by_connection
        with ExitStack() as others:
            for _ in range(IDLE_STREAMS_OF_CONNECTION - 2):
                others.enter_context(limits.stream(connection))
            refused = await clients[2].settle(producing("t"))
            assert refused.status.code == v2.TOO_MANY_REQUESTS
            # Other streams of requests have limits of their own.
            block = wire_block("t", [b"body"])
            assert await apache.running.create_topic("t") == 0
            assert (await apache.running.append_block("t", 0, block)).status.code == 0
            await second.done_writing()
            assert await second.read() is grpc.aio.EOF
            assert (await clients[2].settle(producing("t"))).status.code == v2.OK


async def test_bytes_that_are_no_command_end_the_stream_with_a_code(apache: ApacheClient) -> None:
    path = "/apache.rocketmq.v2.MessagingService/Telemetry"
    channel: Any = apache.running.channel
    call = channel.stream_stream(path)(metadata=apache.metadata)
    await call.write(b"\xff\xff")
    answer = TelemetryCommand.FromString(await call.read())
    assert answer.status.code == v2.BAD_REQUEST
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_newer_stream_of_the_client_ends_the_older_one(apache: ApacheClient) -> None:
    async with apache.telemetry(producing("t")) as older, apache.telemetry(producing("t")) as newer:
        assert await older.read() is grpc.aio.EOF
        assert await older.code() is grpc.StatusCode.OK
        await newer.write(TelemetryCommand(settings=producing("t")))
        assert (await newer.read()).status.code == v2.OK


async def test_the_first_settings_are_sent_again_after_two_seconds(apache: ApacheClient) -> None:
    async with apache.telemetry() as call:
        await call.write(TelemetryCommand(settings=producing("t")))
        first = await call.read()
        again = asyncio.ensure_future(call.read())
        while not again.done():
            apache.running.clock.advance(telemetry_servicer.REPEAT_MS)
            await asyncio.sleep(0.01)
        assert again.result() == first


async def test_the_repeated_settings_are_the_newest(apache: ApacheClient) -> None:
    async with apache.telemetry(producing("t")) as call:
        await call.write(TelemetryCommand(settings=producing("u")))
        second = await call.read()
        again = asyncio.ensure_future(call.read())
        while not again.done():
            apache.running.clock.advance(telemetry_servicer.REPEAT_MS)
            await asyncio.sleep(0.01)
        assert again.result() == second


@pytest.mark.parametrize(("count", "slots"), [(64, 0), (65, 1)])
async def test_n13_settings_with_many_topics_take_a_slot(
    apache: ApacheClient, count: int, slots: int
) -> None:
    topics = [f"t{number}" for number in range(count)]
    await apache.settle(consuming("g", "t"))
    call = asyncio.ensure_future(apache.settle(consuming("g", *topics)))
    waiting = list[int]()
    while not call.done():
        waiting.append(len(running_scheduler()))
        await asyncio.sleep(0)
    assert (await call).status.code == v2.OK
    assert max(waiting) == slots


async def test_results_of_commands_get_no_answer(apache: ApacheClient) -> None:
    async with apache.telemetry(producing("t")) as call:
        result = service_pb2.VerifyMessageResult(nonce="1")
        await call.write(TelemetryCommand(verify_message_result=result))
        await call.write(TelemetryCommand(settings=producing("u")))
        assert (await call.read()).settings == (await apache.settle(producing("u"))).settings


async def test_a_stopping_broker_ends_streams_with_ok(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        call = ApacheClient(running).stub.Telemetry(metadata=ApacheClient(running).metadata)
        await call.write(TelemetryCommand(settings=producing("t")))
        await call.read()
        running.broker.services.groups.clients._streams.stop()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_producer_is_a_member_of_a_group_for_each_topic(apache: ApacheClient) -> None:
    names = [f"t{number}" for number in range(250)]
    async with apache.telemetry(producing(*names)):
        assert [members(apache, name) for name in names] == 250 * [["host@1@0@abc"]]
    assert (await apache.terminate()).code == v2.OK
    assert members(apache, "t0") == []
    assert known(apache) == 0


@pytest.mark.parametrize("client_type", [v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER])
async def test_a_consumer_is_a_member_of_its_group_with_its_subscriptions(
    client_type: v2.ClientType, apache: ApacheClient
) -> None:
    apache.language = "GO"
    answer = await apache.settle(consuming("g", "t", "u", client_type=client_type))
    assert answer.status.code == v2.OK
    assert (await apache.heartbeat(client_type)).code == v2.OK
    registry = apache.running.broker.services.groups.clients
    assert registry.member_ids("g") == ["host@1@0@abc"]
    group = registry.consumer_group("g")
    assert group is not None
    assert sorted(group.subscriptions) == ["t", "u"]
    assert group.latest.consume_type is ConsumeType.CONSUME_ACTIVELY
    ((_, member),) = registry.registrations("host@1@0@abc")
    assert member.version.language is Language.GO
    assert (await apache.terminate()).code == v2.OK
    assert registry.member_count("g") == 0


async def test_heartbeats_keep_a_client_registered(apache: ApacheClient) -> None:
    async with apache.telemetry(producing("t")):
        for _ in range(3):
            apache.running.clock.advance(100_000)
            assert (await apache.heartbeat(v2.PRODUCER)).code == v2.OK
        assert members(apache, "t") == ["host@1@0@abc"]
        apache.running.clock.advance(125_000)
        await until(lambda: members(apache, "t") == [])
        assert apache.running.broker.services.apache_clients.get(apache.client_id) is None
        # The next heartbeat does not say which topics the client has; its settings do.
        assert (await apache.heartbeat(v2.PRODUCER)).code == v2.OK


async def test_a_consumer_without_settings_joins_its_group_by_a_heartbeat(
    apache: ApacheClient,
) -> None:
    other = replace(apache, client_id="other")
    await other.settle(consuming("g", "t"))
    assert (await apache.heartbeat(v2.PUSH_CONSUMER, "g")).code == v2.OK
    registry = apache.running.broker.services.groups.clients
    assert registry.member_ids("g") == ["host@1@0@abc", "other"]
    # The broker knows the group now.
    assert (await apache.heartbeat(v2.PUSH_CONSUMER)).code == v2.OK
    group = registry.consumer_group("g")
    assert group is not None
    assert list(group.subscriptions) == ["t"]


@pytest.mark.parametrize(
    ("client_type", "name", "code"),
    [
        (v2.CLIENT_TYPE_UNSPECIFIED, "g", v2.UNRECOGNIZED_CLIENT_TYPE),
        (v2.LITE_SIMPLE_CONSUMER, "g", v2.UNRECOGNIZED_CLIENT_TYPE),
        (LATER, "g", v2.UNRECOGNIZED_CLIENT_TYPE),
        (v2.SIMPLE_CONSUMER, "", v2.ILLEGAL_CONSUMER_GROUP),
        (v2.SIMPLE_CONSUMER, "CID_RMQ_SYS_x", v2.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_an_illegal_heartbeat_has_its_code(
    client_type: v2.ClientType, name: str, code: v2.Code, apache: ApacheClient
) -> None:
    assert (await apache.heartbeat(client_type, name)).code == code


async def test_an_empty_heartbeat_needs_no_client_id(apache: ApacheClient) -> None:
    """Sends what the SDK for Go sends to find out that a broker is back."""
    apache.client_id = ""
    assert (await apache.heartbeat(v2.CLIENT_TYPE_UNSPECIFIED)).code == v2.OK
    assert (await apache.heartbeat(v2.PRODUCER)).code == v2.CLIENT_ID_REQUIRED


async def test_a_client_id_is_short_in_all_calls(apache: ApacheClient) -> None:
    apache.client_id = "c" * 4_000
    assert (await apache.heartbeat(v2.PRODUCER)).code == v2.BAD_REQUEST
    assert (await apache.send(message("t"))).status.code == v2.BAD_REQUEST
    assert (await apache.settle(producing("t"))).status.code == v2.BAD_REQUEST


async def test_a_client_that_is_unknown_may_terminate(apache: ApacheClient) -> None:
    assert (await apache.terminate()).code == v2.OK


async def test_more_clients_than_the_limit_are_refused(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(clients_max=2))
    async with start_broker(limits=limits) as running:
        clients = [ApacheClient(running, f"c{number}") for number in range(3)]
        for each in clients[:2]:
            assert (await each.settle(producing("t"))).status.code == v2.OK
        refused = await clients[2].settle(producing("t"))
        assert refused.status.code == v2.TOO_MANY_REQUESTS
        # Clients that fell silent make place.
        running.clock.advance(125_000)
        await until(lambda: members(clients[0], "t") == [])
        assert (await clients[2].settle(producing("t"))).status.code == v2.OK


async def test_settings_beyond_the_bytes_of_a_connection_are_refused(apache: ApacheClient) -> None:
    settings = producing("t")
    # Eight such settings are more than a connection may keep, and seven are less.
    settings.user_agent.hostname = "h" * (SETTINGS_BYTES_OF_CONNECTION // 8 // PARTS_FACTOR)
    clients = [replace(apache, client_id=f"c{number}") for number in range(8)]
    for each in clients[:7]:
        assert (await each.settle(settings)).status.code == v2.OK
    refused = await clients[7].settle(settings)
    assert refused.status.code == v2.TOO_MANY_REQUESTS
    assert "limit 16777216; name fewer topics" in refused.status.message
    async with another_connection(apache.running) as running:
        assert (await replace(clients[7], running=running).settle(settings)).status.code == v2.OK


async def test_settings_of_many_parts_are_refused_before_they_are_read(
    apache: ApacheClient,
) -> None:
    refused = await apache.settle(producing(*(f"topic-{number}" for number in range(3_000))))
    assert refused.status.code == v2.PAYLOAD_TOO_LARGE
    assert "more than 4096 parts" in refused.status.message

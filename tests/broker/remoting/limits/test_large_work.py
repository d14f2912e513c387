"""Small requests with large work or answers: bounded bytes, in short passes of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import FRAME_BYTES_MAX, BatchMessage, Header, encode_batch
from rocketpy_proto.remoting.headers.pulls import QueryMessageRequest
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.broker.nameserver.registrations import register, table
from tests.broker.remoting.test_sends_and_pulls import pull_header, send
from tests.support.broker.clients.remoting_client import (
    RemotingBroker,
    RemotingClient,
    RunningNameServer,
)
from tests.support.broker.clients.remoting_groups import consumer, heartbeat_body, members
from tests.support.broker.event_loop import longest_pass_ms
from tests.support.broker.running_broker import StartBroker

PASS_MS_MAX = 60
INT32_MAX = (1 << 31) - 1


async def check(asked: Mapping[Code, Header | None], client: RemotingClient) -> dict[Code, int]:
    """Asserts that answers come in short passes of the loop; returns their bytes."""
    sizes = dict[Code, int]()
    for code, header in asked.items():
        answer, pass_ms, _ = await longest_pass_ms(partial(client.ask, code, header), PASS_MS_MAX)
        assert answer.code == ResponseCode.SUCCESS, (code.name, answer.remark)
        assert pass_ms <= PASS_MS_MAX, (code.name, len(answer.body))
        sizes[code] = len(answer.body)
    assert max(sizes.values()) <= FRAME_BYTES_MAX
    return sizes


async def test_n12_answers_about_many_topics_and_queues_come_in_steps(
    remoting: RemotingBroker,
) -> None:
    names = [f"topic-{number:0100d}" for number in range(10_000)]
    await remoting.running.broker.services.topics.alter([TopicChange(name, 1, 1) for name in names])
    await remoting.running.create_topic("wide", queues=65_536)
    asked: dict[Code, Header | None] = {
        Code.GET_ALL_TOPIC_CONFIG: None,
        Code.GET_TOPIC_STATS_INFO: TopicRequest("wide"),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: TopicRequest("wide"),
        Code.GET_ALL_CONSUMER_OFFSET: None,
        Code.GET_BROKER_RUNTIME_INFO: None,
    }
    sizes = await check(asked, remoting.client)
    assert min(sizes[Code.GET_ALL_TOPIC_CONFIG], sizes[Code.GET_TOPIC_STATS_INFO]) > 2_000_000


async def test_n12_answers_with_messages_have_four_mebibytes_however_many_are_asked_for(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    for _ in range(60):
        await send(remoting.client, bytes(100_000), properties="KEYS\x01k\x02")
    asked = {
        Code.PULL_MESSAGE: pull_header(max_msg_nums=INT32_MAX),
        Code.QUERY_MESSAGE: QueryMessageRequest("T", "k", INT32_MAX, 0, 1 << 60),
    }
    sizes = await check(asked, remoting.client)
    assert max(sizes.values()) <= 5 << 20


async def test_n12_a_batch_of_many_small_messages_is_encoded_in_steps(
    start_broker: StartBroker,
) -> None:
    messages = [BatchMessage(b"x" * (1 + number % 2), b"k\x01v\x02") for number in range(60_000)]
    body = encode_batch(messages)
    async with (
        start_broker(commit_log_segment_bytes=64 << 20, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await running.create_topic("T")
        ask = partial(send, remoting.client, body, Code.SEND_BATCH_MESSAGE, is_batch=True)
        answer, longest_ms, all_ms = await longest_pass_ms(ask)
        assert answer.msg_id.count(",") == len(messages) - 1
        assert longest_ms < all_ms / 4


async def test_n12_a_name_server_lists_many_topics_in_steps(name_server: RunningNameServer) -> None:
    names = [f"topic-{number:0100d}" for number in range(20_000)]
    async with name_server.client() as client:
        await register(client, table(*names))
        sizes = await check({Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: None}, client)
        assert sizes[Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] > 2_000_000
        names = [f"topic-{number}" + "x" * 100_000 for number in range(170)]
        for part in range(0, len(names), 34):
            await register(client, table(*names[part : part + 34], counter=part + 2))
        answer = await client.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"limit {FRAME_BYTES_MAX}" in (answer.remark or "")


async def test_n14_heartbeats_create_a_limited_number_of_groups(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(groups_max=100))
    async with (
        start_broker(limits=limits, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        codes = set()
        for number in range(110):
            body = heartbeat_body(f"c{number}", consumer(f"g{number}", "T"))
            answer = await remoting.client.ask(Code.HEART_BEAT, None, body)
            codes.add(answer.code)
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert "number of consumer groups would exceed the limit 100" in (answer.remark or "")
        assert len(running.broker.services.groups.configs) == 100
        assert await members(remoting.client, "g0") == ["c0"]

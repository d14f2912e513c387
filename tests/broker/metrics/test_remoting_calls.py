"""The metrics of RocketMQ's clients' requests."""

from __future__ import annotations

from tests.broker.metrics.scrape import scrape
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker

COUNTED = "rocketmq_rpc_latency_milliseconds_count"


async def test_each_request_of_remoting_is_counted_with_its_code(start_broker: StartBroker) -> None:
    async with (
        start_broker(http_port=0, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await running.create_topic("T")
        for body in (b"1", b"2"):
            await send(remoting.client, body)
        await pull(remoting.client)
        await pull(remoting.client, topic="missing")
        await remoting.client.ask(9_999)
        found = await scrape(running)

    def count(code: str, response: str = "success", **labels: str) -> float:
        named = {"protocol_type": "remoting", "request_code": code, "response_code": response}
        return found.sum(COUNTED, **named, **labels)

    assert count("send_message_v2", is_long_polling="false") == 2
    assert count("pull_message", is_long_polling="true") == 1
    assert count("pull_message", "topic_not_exist") == 1
    assert found.sum(COUNTED, protocol_type="remoting") == 4
    assert found.value("rocketpy_uncounted_events_total") == 0

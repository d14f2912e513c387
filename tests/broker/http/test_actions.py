"""Actions of the JSON API: each route once, and their effects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_broker.server.http.api.routes import ACTIONS
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import RETRY_TOPIC, UNIQ_KEY
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.http.api_client import Reply, ask, get
from tests.broker.http.schemas import faults
from tests.broker.replication.pair import pair
from tests.support.blocks import wire_block
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.running_broker import RunningBroker, StartBroker

MESSAGES = "/topics/orders/queues/0/messages"
BAD = ResponseCode.INVALID_PARAMETER
# Only a slave can be promoted.
PROMOTE = ("POST", "/broker/promote")


async def test_every_action_is_answered_as_its_description_says(
    running_http: RunningBroker,
) -> None:
    running, found = running_http, {}

    async def act(path: str, method: str, request: str, body: object = None) -> Any:
        reply = await ask(running, method, request, body)
        assert reply.status == 200, reply
        found[method, path] = reply.json
        return reply.json

    topic, group = "/topics/{topic}", "/groups/{consumerGroup}"
    settings = {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"+message.type": "NORMAL"}}
    await act(topic, "PUT", "/topics/orders?createOnly=true", settings)
    assert (await get(running, "/topics/orders"))["attributes"] == {"message.type": "NORMAL"}
    message = {"body": "first", "tags": "paid", "keys": ["k"], "properties": {"shop": "3"}}
    sent = await act(f"{topic}/messages", "POST", "/topics/orders/messages", message)
    assert (sent["topic"], sent["queueId"], sent["queueOffset"]) == ("orders", 0, 0)
    [read] = (await get(running, MESSAGES))["messages"]
    assert {key: read[key] for key in message} == message
    assert read["msgId"] == sent["msgId"]
    await act(group, "PUT", "/groups/billing", {"retryMaxTimes": 3, "consumeEnable": True})
    assert (await get(running, "/groups/billing"))["config"]["retryMaxTimes"] == 3
    reset = "/groups/billing/topics/orders/reset"
    path = f"{group}/topics/{{topic}}/reset"
    shown = await act(path, "POST", reset, {"latest": True, "dryRun": True})
    assert shown == {"offsets": [{"queueId": 0, "oldOffset": None, "newOffset": 1}]}
    assert (await get(running, "/groups/billing/topics"))["topics"] == []
    assert await act(path, "POST", reset, {"latest": True}) == shown
    offsets = await get(running, "/groups/billing/topics/orders")
    assert offsets["queues"][0]["committedOffset"] == 1
    await store_letter(running)
    again = f"{group}/dead-letters/{{offset}}/resend"
    resent = await act(again, "POST", "/groups/billing/dead-letters/0/resend")
    assert resent == {"topic": "orders", "queueId": 0, "queueOffset": 1, "msgId": "ID"}
    deleted = await act(group, "DELETE", "/groups/billing?keepTopics=false")
    assert (await ask(running, "GET", "/groups/billing")).status == 404
    assert isinstance(deleted["deletedTopics"], list)
    cleaned = await act("/clean/expired-files", "POST", "/clean/expired-files")
    assert cleaned["removedSegments"] == 0
    unused = await act("/clean/unused-topics", "POST", "/clean/unused-topics")
    assert unused == {"removedTopics": []}
    await act(f"{topic}/empty", "POST", "/topics/orders/empty")
    [queue] = (await get(running, "/topics/orders/queues"))["queues"]
    assert (queue["minOffset"], queue["maxOffset"]) == (2, 2)
    await act(topic, "DELETE", "/topics/orders")
    assert (await ask(running, "GET", "/topics/orders")).status == 404
    assert found.keys() | {PROMOTE} == {(route.method, route.shown_path) for route in ACTIONS}
    assert_described(await get(running, "/openapi.json"), found)


def assert_described(description: Any, found: dict[tuple[str, str], Any]) -> None:
    for (method, path), value in found.items():
        responses = description["paths"][path][method.lower()]["responses"]
        schema = responses["200"]["content"]["application/json"]["schema"]
        assert [*faults(description, schema, value, path)] == []


async def test_a_promotion_is_answered_as_its_description_says(start_broker: StartBroker) -> None:
    method, path = PROMOTE
    async with pair(start_broker, http_port=0) as both:
        await both.synced()
        description = await get(both.slave, "/openapi.json")
        refused = await ask(both.slave, method, path)
        assert "serves this slave" in refused.json["message"]
        promoted = await ask(both.slave, method, f"{path}?force=true")
        assert (promoted.status, promoted.json["epoch"]) == (200, 1)
        assert_described(description, {PROMOTE: promoted.json})


async def store_letter(running: RunningBroker) -> None:
    """Stores a dead letter of the group `billing` that was first sent to `orders`."""
    topic = "%DLQ%billing"
    await running.create_topic(topic, queues=1)
    properties = {RETRY_TOPIC: ["orders"], UNIQ_KEY: ["ID"], "shop": ["3"]}
    await running.append_block(topic, 0, wire_block(topic, [b"letter"], properties=properties))


@pytest.mark.parametrize(
    ("message_type", "is_delayed"),
    [("NORMAL", False), ("FIFO", False), ("DELAY", False), ("TRANSACTION", True)],
)
async def test_a_dead_letter_is_sent_as_its_topics_message_type_asks(
    running_http: RunningBroker, message_type: str, is_delayed: bool
) -> None:
    settings = {"readQueueNums": 1, "writeQueueNums": 1}
    attributes = {"attributes": {"+message.type": message_type}}
    reply = await ask(running_http, "PUT", "/topics/orders", {**settings, **attributes})
    assert reply.status == 200
    await store_letter(running_http)
    resent = await ask(running_http, "POST", "/groups/billing/dead-letters/0/resend")
    assert (resent.status, resent.json["msgId"]) == (200, "ID")
    assert (resent.json["queueOffset"] is None) == is_delayed
    running_http.clock.advance(2_000)
    while not (found := (await get(running_http, MESSAGES))["messages"]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (found[0]["body"], found[0]["msgId"], found[0]["properties"]["shop"]) == (
        "letter",
        "ID",
        "3",
    )
    [letter] = (await get(running_http, "/groups/billing/dead-letters"))["messages"]
    assert letter["body"] == "letter"


async def test_a_dead_letter_that_is_not_there_is_not_sent(running_http: RunningBroker) -> None:
    await store_letter(running_http)
    path = "/groups/billing/dead-letters/7/resend"
    assert (await ask(running_http, "POST", path)).error == (404, ResponseCode.QUERY_NOT_FOUND)


async def test_a_topic_that_exists_is_changed_or_refused(running_http: RunningBroker) -> None:
    async def put(query: str, queues: int) -> Reply:
        settings = {"readQueueNums": queues, "writeQueueNums": queues}
        return await ask(running_http, "PUT", f"/topics/orders{query}", settings)

    assert (await put("", 1)).status == 200
    assert (await put("", 2)).status == 200
    refused = await put("?createOnly=true", 3)
    assert refused.error == (409, ResponseCode.TOPIC_EXIST_ALREADY)
    assert (await get(running_http, "/topics/orders"))["readQueueNums"] == 2


async def test_a_group_that_exists_is_not_created(running_http: RunningBroker) -> None:
    path = "/groups/billing?createOnly=true"
    assert (await ask(running_http, "PUT", path, {"retryMaxTimes": 3})).status == 200
    refused = await ask(running_http, "PUT", path, {"retryMaxTimes": 4})
    assert refused.error == (409, ResponseCode.ILLEGAL_OPERATION)
    assert (await get(running_http, "/groups/billing"))["config"]["retryMaxTimes"] == 3


async def test_messages_are_sent_in_base64_and_with_a_delay(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    path = "/topics/orders/messages"
    reply = await ask(running_http, "POST", path, {"bodyBase64": "/w==", "queueId": 0})
    assert reply.status == 200
    delayed = await ask(running_http, "POST", path, {"body": "later", "delayLevel": 1})
    assert delayed.json["queueOffset"] is None
    [message] = (await get(running_http, MESSAGES))["messages"]
    assert message["bodyBase64"] == "/w=="


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "needs one of body and bodyBase64"),
        ({"body": "a", "bodyBase64": "YQ=="}, "needs one of body and bodyBase64"),
        ({"body": 1}, "body is 1, accepted is a text"),
        ({"body": "a", "queue": 0}, "unknown field 'queue'"),
        ({"body": "a", "keys": ["a b"]}, "has a blank"),
        ({"body": "a", "queueId": 7}, "queue id 7"),
        ({"body": "a", "delayLevel": -1}, "is negative"),
        ({"body": "a", "deliverAt": "soon"}, "'soon' is no time"),
        ({"body": "a", "properties": {"DELAY": "3"}}, "use delayLevel"),
        ([], "a JSON object"),
    ],
)
async def test_a_message_of_another_form_is_not_sent(
    running_http: RunningBroker, body: object, said: str
) -> None:
    await running_http.create_topic("orders", queues=1)
    reply = await ask(running_http, "POST", "/topics/orders/messages", body)
    assert reply.error == (400, BAD)
    assert said in reply.json["message"]
    assert (await get(running_http, MESSAGES))["messages"] == []


async def test_a_message_to_no_topic_is_refused(running_http: RunningBroker) -> None:
    reply = await ask(running_http, "POST", "/topics/none/messages", {"body": "a"})
    assert reply.error == (404, ResponseCode.TOPIC_NOT_EXIST)


async def test_a_group_with_members_is_reset_by_force_alone(running_http: RunningBroker) -> None:
    running, path = running_http, "/groups/billing/topics/orders/reset"
    await running.create_topic("orders", queues=1)
    await running.append("orders", 0, b"a", b"b")
    await heartbeat(running, "client-1", consumer("billing", "orders"))
    refused = await ask(running, "POST", path, {"offset": 1})
    assert refused.error == (409, ResponseCode.ILLEGAL_OPERATION)
    forced = await ask(running, "POST", path, {"offset": 1, "force": True})
    assert forced.json["offsets"][0]["newOffset"] == 1
    by_time = {"timestamp": "2020-01-01T00:00:00Z", "force": True, "dryRun": True}
    assert (await ask(running, "POST", path, by_time)).json["offsets"][0]["newOffset"] == 0
    both = await ask(running, "POST", path, {"offset": 1, "latest": True})
    assert both.error == (400, BAD)
    assert "accepted is only one of earliest, latest, timestamp, offset" in both.json["message"]
    request = broker_pb2.QueryConsumerOffsetsRequest(
        consumer_group="billing", queues=[broker_pb2.TopicQueue(topic="orders", queue_id=0)]
    )
    answer = await running.data.QueryConsumerOffsets(request)
    assert answer.offsets[0].offset == 1

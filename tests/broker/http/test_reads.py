"""Reads of the JSON API: each route once, pages, and the description of its answers."""

from __future__ import annotations

import zlib
from typing import Any

from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.server.http.api.answers import BODIES_BYTES_MAX
from rocketpy_broker.server.http.api.routes import READS, ROUTES
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.http.api_client import ask, get
from tests.broker.http.schemas import faults
from tests.support.blocks import BORN_MS, compressed, wire_block
from tests.support.broker.clients.group_clients import consumer, heartbeat, listening
from tests.support.broker.running_broker import RunningBroker, StartBroker

GROUP = "billing"
# A request for each read, by the read's path.
REQUESTS = {
    "/broker": "/broker",
    "/broker/status": "/broker/status",
    "/broker/counters": "/broker/counters?includeSystem=true",
    "/statistics": "/statistics?names=TOPIC_PUT_NUMS&names=BROKER_PUT_NUMS",
    "/history": f"/history?consumerGroup={GROUP}",
    "/topics": "/topics",
    "/topics/{topic}": "/topics/orders",
    "/topics/{topic}/queues": "/topics/orders/queues",
    "/topics/{topic}/groups": "/topics/orders/groups",
    "/topics/{topic}/messages": "/topics/orders/messages?key=k-1",
    "/topics/{topic}/queues/{queueId}/messages": "/topics/orders/queues/0/messages?offset=1",
    "/topics/{topic}/queues/{queueId}/offset": (
        "/topics/orders/queues/0/offset?timestamp=2020-01-01T00:00:00%2B01:00"
    ),
    "/groups": "/groups",
    "/groups/{consumerGroup}": f"/groups/{GROUP}",
    "/groups/{consumerGroup}/topics": f"/groups/{GROUP}/topics",
    "/groups/{consumerGroup}/topics/{topic}": f"/groups/{GROUP}/topics/orders",
    "/groups/{consumerGroup}/clients": f"/groups/{GROUP}/clients",
    "/groups/{consumerGroup}/dead-letters": f"/groups/{GROUP}/dead-letters",
    "/producers/{producerGroup}/clients": "/producers/makers/clients",
    "/clients": "/clients",
    "/transactions": "/transactions?producerGroup=none",
}
BY_ID = "/messages/{offsetMsgId}"


async def fill(running: RunningBroker) -> None:
    """Stores three messages and a dead letter; a group has consumed one of them."""
    await running.create_topic("orders", queues=2)
    await running.create_topic(f"%DLQ%{GROUP}", queues=1)
    block = wire_block(
        "orders", [b"zero", b"\xffone", b"two"], tags="paid", keys=["k-0", "k-1", "k-2"]
    )
    await running.append_block("orders", 0, block)
    await running.append(f"%DLQ%{GROUP}", 0, b"letter")
    await heartbeat(running, "client-1", consumer(GROUP, "orders"), producers=["makers"])
    offset = broker_pb2.CommittedOffset(topic="orders", queue_id=0, offset=1)
    request = broker_pb2.CommitOffsetsRequest(consumer_group=GROUP, offsets=[offset])
    assert (await running.data.CommitOffsets(request)).status.code == 0


async def hour(running: RunningBroker) -> Any:
    """Returns the history after a minute in which a group's lag was read."""
    running.clock.advance(60_000)
    path = REQUESTS["/history"]
    while (found := await get(running, path))["groups"][0]["lag"] is None:
        continue
    return found


async def test_every_read_is_answered_as_its_description_says(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await fill(running)
        description = await get(running, "/openapi.json")
        found: dict[str, Any] = {path: await get(running, text) for path, text in REQUESTS.items()}
        [message] = found["/topics/{topic}/messages"]["messages"]
        found[BY_ID] = await get(running, f"/messages/{message['offsetMsgId']}")
        found["/history"] = await hour(running)
    assert found.keys() == {route.shown_path for route in READS}
    for path, value in found.items():
        responses = description["paths"][path]["get"]["responses"]
        schema = responses["200"]["content"]["application/json"]["schema"]
        assert [*faults(description, schema, value, path)] == []
    assert found["/broker"]["brokerName"] == "broker-a"
    assert found["/topics/{topic}"]["readQueueNums"] == 2
    assert [each["topic"] for each in found["/topics"]["configs"]] == [f"%DLQ%{GROUP}", "orders"]
    queue = found["/topics/{topic}/queues"]["queues"][0]
    assert (queue["minOffset"], queue["maxOffset"], queue["messages"]) == (0, 3, 3)
    assert found["/topics/{topic}/queues"]["queues"][1]["lastStoreTimestamp"] is None
    assert found["/topics/{topic}/groups"] == {"groups": [GROUP], "hasMore": False}
    assert found["/topics/{topic}/queues/{queueId}/offset"]["offset"] == 0
    page = found["/topics/{topic}/queues/{queueId}/messages"]
    assert (page["nextOffset"], page["maxOffset"]) == (3, 3)
    assert [each.get("body") for each in page["messages"]] == [None, "two"]
    assert page["messages"][0] == message == found[BY_ID]
    assert message["bodyBase64"] == "/29uZQ=="
    assert (message["tags"], message["keys"]) == ("paid", ["k-1"])
    assert message["bornTimestamp"] == time_of_ms(BORN_MS)
    assert found["/groups"]["groups"][0]["lag"] == 2
    assert found["/groups"]["groups"][0]["consumeType"] == "CONSUME_PASSIVELY"
    assert found["/groups/{consumerGroup}"]["deadLetters"] == 1
    assert found["/groups/{consumerGroup}"]["config"]["retryMaxTimes"] == 16
    offsets = found["/groups/{consumerGroup}/topics/{topic}"]["queues"]
    assert [each["committedOffset"] for each in offsets] == [1, None]
    [letter] = found["/groups/{consumerGroup}/dead-letters"]["messages"]
    assert letter["body"] == "letter"
    assert found["/clients"]["clients"][0]["clientId"] == "client-1"
    [producer] = found["/producers/{producerGroup}/clients"]["producers"]
    assert producer["clientId"] == "client-1"
    assert found["/history"]["groups"] == [
        {"consumerGroup": GROUP, "lag": 2, "memberCount": 1, "lags": [2]}
    ]
    [minute] = found["/history"]["minutes"]
    assert (minute["putCount"], minute["getCount"], minute["lag"]) == (4, 3, 2)
    assert found["/transactions"] == {"transactions": [], "isComplete": True}


async def test_lists_are_paged(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        for number in range(5):
            await running.create_topic(f"topic-{number}", queues=3)
        first = await get(running, "/topics?countMax=2")
        second = await get(running, "/topics?countMax=2&after=topic-1")
        last = await get(running, "/topics?countMax=2&after=topic-3")
        queues = await get(running, "/topics/topic-0/queues?queueId=1&countMax=1")
        unlimited = await ask(running, "GET", "/topics?countMax=1001")
    assert [each["topic"] for each in second["configs"]] == ["topic-2", "topic-3"]
    assert [page["hasMore"] for page in (first, second, last)] == [True, True, False]
    assert ([each["queueId"] for each in queues["queues"]], queues["hasMore"]) == ([1], True)
    assert unlimited.error == (400, 29)


async def test_messages_with_a_key_are_paged_from_the_newest(start_broker: StartBroker) -> None:
    path, bodies, before = "/topics/orders/messages?key=k&countMax=2", [], 0
    async with start_broker(http_port=0) as running:
        await running.create_topic("orders", queues=1)
        block = wire_block("orders", [b"1", b"2", b"3", b"4", b"5"], keys=["k"] * 5)
        await running.append_block("orders", 0, block)
        for _page in range(3):
            page = await get(running, f"{path}&beforeOffset={before}")
            before = page["nextBeforeOffset"]
            bodies.append([each["body"] for each in page["messages"]])
    assert (bodies, before) == ([["4", "5"], ["2", "3"], ["1"]], 0)


async def test_messages_of_a_queue_are_paged_by_their_bytes(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("orders", queues=1)
        for number in range(4):
            await running.append("orders", 0, bytes([48 + number]) * 100_000)
        offset, bodies, pages = 0, [], 0
        while offset < 4:
            page = await get(running, f"/topics/orders/queues/0/messages?offset={offset}")
            bodies += [each["body"] for each in page["messages"]]
            offset, pages = page["nextOffset"], pages + 1
        one = await get(running, "/topics/orders/queues/0/messages?offset=1&offsetEnd=2")
        none = await get(running, "/topics/orders/queues/0/messages?offset=4")
    assert bodies == [str(number) * 100_000 for number in range(4)]
    assert pages == 2
    assert [each["queueOffset"] for each in one["messages"]] == [1]
    assert (none["messages"], none["nextOffset"], none["maxOffset"]) == ([], 4, 4)


async def test_a_long_body_is_cut_unless_its_message_is_asked_for_alone(
    start_broker: StartBroker,
) -> None:
    long, text = "x" * (BODIES_BYTES_MAX - 1), "äöü"
    async with start_broker(http_port=0) as running:
        await running.create_topic("orders", queues=1)
        block = compressed("orders", zlib.compress(long.encode()))
        await running.append_block("orders", 0, block)
        await running.append("orders", 0, text.encode(), b"x")
        page = await get(running, "/topics/orders/queues/0/messages")
        alone = await get(running, "/topics/orders/queues/0/messages?offset=1&offsetEnd=2")
    first, second, third = page["messages"]
    assert (first["body"] == long, "bodyIsCut" in first) == (True, False)
    assert (second["body"], second["bodyIsCut"]) == ("", True)
    assert third["body"] in {"", "x"}
    assert alone["messages"][0]["body"] == text


async def test_names_in_a_path_are_percent_encoded(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("%RETRY%a|b", queues=1)
        found = await get(running, "/topics/%25RETRY%25a%7Cb")
    assert found["topic"] == "%RETRY%a|b"


async def test_a_notice_stream_shows_in_the_clients_of_a_group(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running, listening(running, "client-1"):
        await heartbeat(running, "client-1", consumer(GROUP, "orders"), producers=["makers"])
        found = await get(running, "/clients")
        members = await get(running, f"/groups/{GROUP}/clients")
    registrations = found["clients"][0]["registrations"]
    assert [each["isProducer"] for each in registrations] == [False, True]
    assert [each["clientId"] for each in members["consumers"]] == ["client-1"]
    assert members["consumerData"]["subscriptions"][0]["topic"] == "orders"


async def test_the_description_names_every_route_once(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        description = await get(running, "/openapi.json")
    operations = [
        (method.upper(), path, operation["operationId"])
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    assert {each[:2] for each in operations} == {(each.method, each.shown_path) for each in ROUTES}
    assert len({each[2] for each in operations}) == len(ROUTES)

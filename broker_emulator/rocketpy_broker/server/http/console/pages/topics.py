"""Topics: the list, and the settings, queues and groups of one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketpy_broker.contract_json import json_of, lag_of
from rocketpy_broker.server.http.api.routes import PAGE_COUNT
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.request import INT_MAX, PageRequest, address
from rocketpy_proto.model import RETRY_PREFIX
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

# Queues that are counted for one list of topics, and for the groups of one topic.
LIST_QUEUES_MAX, GROUPS_QUEUES_MAX = 8_000, 20_000
GROUPS_COUNT = 20
PUT, PUT_BYTES, GET = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS"


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group with progress in a topic; the lag is None if the user may not read it."""

    name: str
    lag: int | None
    get_rate: float | None


async def topic_config(request: PageRequest) -> admin_pb2.TopicConfig:
    """Returns the settings of the path's topic. Raises RefusedCallError."""
    asked = admin_pb2.ListTopicsRequest(topics=[request.places["topic"]])
    answer = await request.call("Admin/ListTopics", asked)
    found: admin_pb2.TopicConfig = answer.configs[0]
    return found


async def is_brokers_own(request: PageRequest, topic: str) -> bool:
    """True if only the broker changes a topic: it lists such topics on request only."""
    if topic.startswith(RETRY_PREFIX):
        return False
    asked = admin_pb2.ListTopicsRequest(prefix=topic, count_max=1)
    listed = await request.call("Admin/ListTopics", asked)
    return topic not in {each.topic for each in listed.configs}


async def message_counts(request: PageRequest, topics: Sequence[str]) -> dict[str, int]:
    """Returns the number of messages of topics that the user may read."""
    asked = broker_pb2.QueryOffsetsRequest(topics=topics)
    answer = await request.found("Broker/QueryOffsets", asked) if topics else None
    if answer is None:
        # Perhaps the user may read some of them.
        alone = [await message_counts(request, [each]) for each in topics if len(topics) > 1]
        return {topic: count for each in alone for topic, count in each.items()}
    # Many queues take many milliseconds.
    return await asyncio.to_thread(_message_counts, answer)


def _message_counts(answer: Any) -> dict[str, int]:
    return {
        each.topic: sum(queue.max_offset - queue.min_offset for queue in each.queues)
        for each in answer.topics
    }


async def rates(
    request: PageRequest, keys: Sequence[str], *names: str
) -> dict[tuple[str, str], float]:
    """Returns the rates of the last minute by name and key; empty if the user may not read them."""
    if not keys:
        return {}
    asked = admin_pb2.GetStatisticsRequest(names=names, keys=keys)
    answer = await request.found("Admin/GetStatistics", asked)
    items = () if answer is None else answer.items
    return {(each.name, each.key): each.minute.tps for each in items}


# --- Pages ---


async def _topics(request: PageRequest) -> Mapping[str, object]:
    query = request.query
    after, prefix = query.get("after", ""), query.get("prefix", "").strip()
    is_system = query.get("system") == "on"
    asked = admin_pb2.ListTopicsRequest(
        after=after, count_max=PAGE_COUNT, include_system=is_system, prefix=prefix
    )
    listed = await request.call("Admin/ListTopics", asked)
    counted, queues = [], 0
    for each in listed.configs:
        if queues + each.read_queue_nums <= LIST_QUEUES_MAX:
            queues += each.read_queue_nums
            counted.append(each.topic)
    found = await rates(request, [each.topic for each in listed.configs], PUT)
    system = "on" if is_system else ""
    return {
        "topics": json_of(listed),
        "counts": await message_counts(request, counted),
        "put_rates": {key: rate for (_, key), rate in found.items()},
        "prefix": prefix,
        "is_system": is_system,
        "place": address("/topics", prefix=prefix, after=after, system=system),
        "next": _next_topics(listed, prefix, system),
    }


def _next_topics(listed: admin_pb2.ListTopicsResponse, prefix: str, system: str) -> str:
    """Returns the address of the next page; empty without one."""
    if not listed.has_more:
        return ""
    return address("/topics", prefix=prefix, after=listed.configs[-1].topic, system=system)


async def _topic(request: PageRequest) -> Mapping[str, object]:
    config = await topic_config(request)
    topic = config.topic
    queue_id = request.number("queue", 0, INT_MAX)
    after = request.query.get("group", "")
    asked = admin_pb2.ListTopicQueuesRequest(topic=topic, queue_id=queue_id, count_max=PAGE_COUNT)
    queues = await request.json("Admin/ListTopicQueues", asked)
    count = max(min(GROUPS_COUNT, GROUPS_QUEUES_MAX // max(config.read_queue_nums, 1)), 1)
    listed = admin_pb2.ListTopicGroupsRequest(topic=topic, after=after, count_max=count)
    groups = await request.call("Admin/ListTopicGroups", listed)
    keys = [topic, *(f"{topic}@{group}" for group in groups.groups)]
    found = await rates(request, keys, PUT, PUT_BYTES, GET)
    get_rates = [rate for (name, _), rate in found.items() if name == GET]
    is_whole = not (after or groups.has_more)
    return {
        "topic": json_of(config),
        "is_own": await is_brokers_own(request, topic),
        "queues": queues,
        "count": (await message_counts(request, [topic])).get(topic),
        "put_rate": found.get((PUT, topic)),
        "put_bytes": found.get((PUT_BYTES, topic)),
        # The broker counts reads by group, so the sum needs all groups.
        "get_rate": sum(get_rates) if get_rates and is_whole else None,
        "groups": [
            TopicGroup(name, await lag(request, topic, name), found.get((GET, f"{topic}@{name}")))
            for name in groups.groups
        ],
        "has_more_groups": groups.has_more,
        "queue_id": queue_id,
        "after": after,
    }


async def lag(request: PageRequest, topic: str, group: str) -> int | None:
    """Returns the number of messages that a group has not consumed; None without permission."""
    asked = broker_pb2.QueryOffsetsRequest(topics=[topic], consumer_group=group)
    answer: Any = await request.found("Broker/QueryOffsets", asked)
    if answer is None:
        return None
    return await asyncio.to_thread(_lag, answer)


def _lag(answer: Any) -> int:
    return sum(lag_of(queue) for each in answer.topics for queue in each.queues)


PAGES = (
    Page("/topics", "topics.html", _topics),
    Page("/topics/{topic}", "topic.html", _topic),
)

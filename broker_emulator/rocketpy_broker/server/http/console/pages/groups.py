"""Consumer groups, and one group with members, topics and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.server.http.api.routes import PAGE_COUNT
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.pages.group_actions import details_of
from rocketpy_broker.server.http.console.pages.lag import GroupState, findings
from rocketpy_broker.server.http.console.request import INT_MAX, PageRequest
from rocketpy_broker.server.http.console.trends import Point, lag_points, lines
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2

# Topics, queues and subscriptions of one group on a page.
TOPICS, QUEUES, SUBSCRIPTIONS = 50, 64, 50


async def _groups(request: PageRequest) -> Mapping[str, object]:
    asked = groups_pb2.ListGroupsRequest(
        after=request.query.get("after", ""),
        prefix=request.query.get("prefix", "").strip(),
        count_max=PAGE_COUNT,
        include_system=request.query.get("system") == "on",
    )
    found = await request.json("Groups/ListGroups", asked)
    return {
        "groups": found["groups"],
        "has_more": found["hasMore"],
        "is_cut": found["hasMore"] and len(found["groups"]) < PAGE_COUNT,
        "after": asked.after,
        "prefix": asked.prefix,
        "is_system": asked.include_system,
    }


async def _group(request: PageRequest) -> Mapping[str, object]:
    group, details = request.places["group"], await details_of(request)
    asked = groups_pb2.ConnectionsRequest(
        consumer_group=group, after=request.query.get("member", ""), count_max=PAGE_COUNT
    )
    members = await request.call("Groups/Connections", asked)
    after = request.query.get("after", "")
    listed = groups_pb2.ListGroupTopicsRequest(consumer_group=group, after=after, count_max=TOPICS)
    topics = await request.call("Groups/ListGroupTopics", listed)
    lags = await _lags(request, group)
    topic = request.query.get("topic") or _worst(topics.topics)
    queues = await _queues(request, group, topic) if topic else None
    state = GroupState(group, details, members, topics, lags, request.now_ms)
    subscriptions = sorted(members.consumer_data.subscriptions, key=lambda each: each.topic)
    return {
        "group": group,
        "details": json_of(details),
        "members": json_of(members),
        "member_after": asked.after,
        "subscriptions": [json_of(each) for each in subscriptions[:SUBSCRIPTIONS]],
        "subscription_count": len(subscriptions),
        "topics": json_of(topics),
        "topic_after": after,
        "lag": sum(each.lag for each in topics.topics),
        "lag_lines": lines(lags, request.now_ms),
        "findings": findings(state),
        "topic": topic,
        "queues": queues,
        "batch_age_ms": request.now_ms - details.micro_batch.commit_timestamp_ms,
    }


def _worst(topics: Sequence[groups_pb2.GroupTopic]) -> str:
    """Returns the topic with the greatest lag; empty without topics."""
    return max(topics, key=lambda each: each.lag).topic if topics else ""


async def _queues(request: PageRequest, group: str, topic: str) -> dict[str, Any] | None:
    """Returns a page of a topic's queues with the group's offset and lag in each.

    None for a topic that is gone, or that the user may not read.
    """
    asked = admin_pb2.ListTopicQueuesRequest(
        topic=topic,
        queue_id=request.number("queue", 0, INT_MAX),
        count_max=QUEUES,
    )
    found = await request.found("Admin/ListTopicQueues", asked)
    if found is None:
        return None
    places = [broker_pb2.TopicQueue(topic=topic, queue_id=each.queue_id) for each in found.queues]
    committed = await request.call(
        "Broker/QueryConsumerOffsets",
        broker_pb2.QueryConsumerOffsetsRequest(consumer_group=group, queues=places),
    )
    rows = []
    for queue, offset in zip(found.queues, committed.offsets, strict=True):
        is_committed = offset.status.code == ResponseCode.SUCCESS
        place = max(offset.offset if is_committed else 0, queue.min_offset)
        rows.append(
            {
                **json_of(queue),
                "committed": offset.offset if is_committed else None,
                "lag": max(queue.max_offset - place, 0),
            }
        )
    return {
        "rows": rows,
        "has_more": found.has_more,
        "begin": asked.queue_id,
        "largest": max((each["lag"] for each in rows), default=0),
    }


async def _lags(request: PageRequest, group: str) -> Sequence[Point]:
    """Returns a group's lag by minute, the oldest first; empty if the user may not read it."""
    asked = admin_pb2.GetHistoryRequest(consumer_group=group)
    found = await request.found("Admin/GetHistory", asked)
    return () if found is None else lag_points(found.minutes, found.groups[0].lags)


PAGES = (
    Page("/groups", "groups.html", _groups),
    Page("/groups/{group}", "group.html", _group),
)

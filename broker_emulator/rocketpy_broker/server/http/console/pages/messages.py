"""Messages of a topic by offset, time, key, id or tag."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketpy_broker.errors import BrokerError, MessageNotExistError, ParameterIllegalError
from rocketpy_broker.messages.json_form import head_of
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_broker.server.http.api.routes import PREFIX, RANGE_BYTES_MAX
from rocketpy_broker.server.http.console.message_views import body_view, messages_of, rows_of
from rocketpy_broker.server.http.console.page import REFUSAL, Page
from rocketpy_broker.server.http.console.pages.message_trace import trace_of
from rocketpy_broker.server.http.console.pages.topics import topic_config
from rocketpy_broker.server.http.console.renderer import count_text, part
from rocketpy_broker.server.http.console.request import (
    INT_MAX,
    PageRequest,
    address,
    number_of,
    time_of,
)
from rocketpy_proto.model import WAITING_TOPICS
from rocketpy_proto.record.properties import REAL_TOPIC
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

# Messages of a page. To find the newest: queues that are listed, and queues that are read.
COUNT, QUEUES_LISTED, QUEUES_READ = 32, 200, 16
_OFFSET_MSG_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
Row = dict[str, Any]


@dataclass
class Listing:
    """Messages of a topic in the order of their page, with a title and links to other pages."""

    title: str
    rows: list[Row]
    links: dict[str, str] = field(default_factory=dict)
    # Messages that readers of the topic do not see yet.
    waiting: list[Row] = field(default_factory=list)


async def _messages(request: PageRequest) -> Mapping[str, object]:
    config = await topic_config(request)
    query = {name: value.strip() for name, value in request.query.items()}
    listing, refusal = Listing("No messages", []), None
    try:
        listing = await _listing(request, config.topic, query)
    except BrokerError as error:
        refusal = error
    return {"topic": config.topic, "listing": listing, "query": query, REFUSAL: refusal}


async def _listing(request: PageRequest, topic: str, query: Mapping[str, str]) -> Listing:
    """Returns the messages that a form asks for. Raises BrokerError."""
    if query.get("key"):
        return await _by_key(request, topic, query["key"])
    if query.get("tag"):
        return await _by_tag(request, topic, query["tag"])
    if query.get("queue"):
        queue_id = number_of("queue", query["queue"], INT_MAX)
        return await _of_queue(request, topic, queue_id, query.get("time", ""))
    if query.get("offset"):
        raise ParameterIllegalError("queue", "", "a queue beside an offset")
    return await _of_queues(request, topic, query.get("time", ""))


# --- By queue ---


@dataclass(frozen=True, slots=True)
class _Range:
    rows: list[Row]
    next_offset: int
    min_offset: int
    max_offset: int


async def _range(request: PageRequest, topic: str, queue_id: int, begin: int, end: int) -> _Range:
    """Returns messages of a queue from `begin` on, as many as a page takes."""
    asked = broker_pb2.PullRequest(
        topic=topic,
        queue_id=queue_id,
        offset=begin,
        offset_end=max(end, begin + 1),
        response_bytes_max=RANGE_BYTES_MAX,
    )
    answer = await request.call("Broker/Pull", asked)
    rows = await rows_of(answer)
    return _Range(rows, answer.next_offset, answer.min_offset, answer.max_offset)


async def _queues(
    request: PageRequest, topic: str, queue_id: int, count: int
) -> list[admin_pb2.TopicQueueStatus]:
    asked = admin_pb2.ListTopicQueuesRequest(topic=topic, queue_id=queue_id, count_max=count)
    answer = await request.call("Admin/ListTopicQueues", asked)
    return list(answer.queues)


async def _offsets_at(request: PageRequest, topic: str, queue_ids: list[int], text: str) -> Any:
    """Returns the first offset at a time or later, of each queue."""
    time_ms = ms_of_time(time_of("time", text))
    asked = broker_pb2.SearchOffsetsRequest(
        queues=[
            broker_pb2.QueueTime(topic=topic, queue_id=queue_id, timestamp_ms=time_ms)
            for queue_id in queue_ids
        ]
    )
    return [each.offset for each in (await request.call("Broker/SearchOffsets", asked)).offsets]


async def _of_queue(request: PageRequest, topic: str, queue_id: int, time: str) -> Listing:
    """Returns messages of one queue, the oldest first: from an offset, a time, or the newest."""
    queues = await _queues(request, topic, queue_id, 1)
    if not queues:
        return Listing(f"Queue {queue_id} has no messages", [])
    (queue,) = queues
    begin, end = queue.min_offset, queue.max_offset
    newest = max(end - COUNT, begin)
    offset = request.number("offset", newest)
    if time:
        (offset,) = await _offsets_at(request, topic, [queue_id], time)
    # After the last message a time finds nothing, and an offset finds the last message.
    offset = min(max(offset, begin), end if time else max(end - 1, begin))
    found = await _range(request, topic, queue_id, offset, min(offset + COUNT, end))
    place, links = f"/topics/{part(topic)}/messages", {}
    if offset > begin:
        older = max(offset - COUNT, begin)
        links["Older"] = address(place, queue=queue_id, offset=older)
    if offset < found.next_offset < end:
        links["Newer"] = address(place, queue=queue_id, offset=found.next_offset)
    if offset < newest:
        links["Newest"] = address(place, queue=queue_id)
    title = (
        f"Queue {queue_id}: messages from offset {count_text(offset)} "
        f"of {count_text(begin)} to {count_text(end)}"
    )
    return Listing(title if end > begin else f"Queue {queue_id} is empty", found.rows, links)


async def _of_queues(request: PageRequest, topic: str, time: str) -> Listing:
    """Returns the newest messages of the queues used last, or their first ones from a time on."""
    seen = await _queues(request, topic, 0, QUEUES_LISTED)
    used = [each for each in seen if each.max_offset > each.min_offset]
    used.sort(key=lambda each: each.last_store_timestamp_ms, reverse=True)
    used = used[:QUEUES_READ]
    count = max(COUNT // max(len(used), 1), 2)
    begins = [max(each.max_offset - count, each.min_offset) for each in used]
    if time and used:
        begins = await _offsets_at(request, topic, [each.queue_id for each in used], time)
    rows: list[Row] = []
    for queue, begin in zip(used, begins, strict=False):
        if begin >= queue.max_offset:
            continue
        end = min(begin + count, queue.max_offset)
        found = await _range(request, topic, queue.queue_id, begin, end)
        if not time and found.next_offset < end:
            # Long messages: the newest one represents its queue.
            found = await _range(request, topic, queue.queue_id, end - 1, end)
        rows += found.rows
    rows.sort(key=lambda row: (row["storeTimestamp"], row["queueOffset"]), reverse=not time)
    number = "each queue" if len(seen) <= QUEUES_READ else f"{len(used)} queues"
    title = f"First messages from {time} on in {number}" if time else f"Newest in {number}"
    return Listing(title, rows)


# --- By key or tag ---


async def _query(request: PageRequest, **fields: Any) -> Any:
    before = request.number("before", 0)
    asked = admin_pb2.QueryMessageRequest(count_max=COUNT, before_offset=before, **fields)
    return await request.call("Admin/QueryMessage", asked)


def _older(topic: str, answer: Any, **query: str) -> dict[str, str]:
    """Returns the link to the next page of a query."""
    before = answer.next_before_offset
    place = f"/topics/{part(topic)}/messages"
    return {"Older": address(place, **query, before=before)} if before else {}


async def _by_tag(request: PageRequest, topic: str, tag: str) -> Listing:
    answer = await _query(request, topic=topic, tag=tag)
    rows = (await rows_of(answer))[::-1]
    return Listing(f"Messages with tag {tag:.200}", rows, _older(topic, answer, tag=tag))


async def _by_key(request: PageRequest, topic: str, key: str) -> Listing:
    answer = await _query(request, topic=topic, key=key)
    rows = (await rows_of(answer))[::-1]
    listing = Listing(f"Messages with key or id {key:.200}", rows, _older(topic, answer, key=key))
    if not request.number("before", 0):
        if not rows and _OFFSET_MSG_ID.fullmatch(key):
            asked = admin_pb2.ViewMessageRequest(offset_msg_id=key)
            viewed = await request.found("Admin/ViewMessage", asked)
            listing.rows = [] if viewed is None else await rows_of(viewed)
        listing.waiting = await _waiting(request, topic, key, {row["msgId"] for row in rows})
    return listing


async def _waiting(request: PageRequest, topic: str, key: str, seen: set[str]) -> list[Row]:
    """Returns messages to the topic that wait in the broker's own topics, and are not in `seen`."""
    found: list[Row] = []
    for waiting in WAITING_TOPICS:
        asked = admin_pb2.QueryMessageRequest(topic=waiting, key=key, count_max=COUNT)
        answer = await request.found("Admin/QueryMessage", asked)
        rows = [] if answer is None else await rows_of(answer)
        found += (
            row
            for row in rows
            if row["properties"].get(REAL_TOPIC) == topic and row["msgId"] not in seen
        )
    return found


# --- One message ---


async def _message(request: PageRequest) -> Mapping[str, object]:
    places = request.places
    topic = places["topic"]
    queue_id = number_of("queue", places["queue_id"], INT_MAX)
    offset = number_of("offset", places["offset"])
    asked = broker_pb2.PullRequest(
        topic=topic, queue_id=queue_id, offset=offset, offset_end=offset + 1, response_bytes_max=1
    )
    answer = await request.call("Broker/Pull", asked)
    if not answer.record_sizes:
        place = f"{topic}, queue {queue_id}, offset {offset}"
        reason = f"the queue has offsets {answer.min_offset} to {answer.max_offset - 1}"
        raise MessageNotExistError(place, reason)

    # A long record takes milliseconds.
    message, size = await asyncio.to_thread(lambda: next(messages_of(answer)))
    body = await asyncio.to_thread(body_view, message)
    queue = f"/topics/{part(topic)}/queues/{queue_id}/messages"
    return {
        "topic": topic,
        "message": message,
        "head": head_of(message),
        "size": size,
        "body": body,
        "trace": await trace_of(
            request, topic, message, answer.min_offset, request.query.get("group", "")
        ),
        "place": f"{queue}/{offset}",
        "older": f"{queue}/{offset - 1}" if offset > answer.min_offset else "",
        "newer": f"{queue}/{offset + 1}" if offset + 1 < answer.max_offset else "",
        "raw": address(PREFIX + queue, offset=offset, offsetEnd=offset + 1),
    }


PAGES = (
    Page("/topics/{topic}/messages", "messages.html", _messages),
    Page("/topics/{topic}/queues/{queue_id}/messages/{offset}", "message.html", _message),
)

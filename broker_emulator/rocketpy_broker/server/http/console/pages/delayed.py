"""Waiting messages of one delay level, the next due ones first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rocketpy_broker.runtime.time_format import ms_of_time, time_of_ms
from rocketpy_broker.server.http.api.routes import RANGE_BYTES_MAX
from rocketpy_broker.server.http.console.message_views import messages_of, row_of
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.request import PageRequest, number_of
from rocketpy_broker.store.delay_levels import LEVELS_MAX
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record.properties import REAL_TOPIC
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

COUNT = 32


async def _delayed(request: PageRequest) -> Mapping[str, object]:
    level = number_of("level", request.places["level"], LEVELS_MAX)
    status = await request.call("Admin/GetBrokerStatus", admin_pb2.GetBrokerStatusRequest())
    found = [each for each in status.delay_levels if each.level == level]
    shown = {"level": level, "queue_id": level - 1, "waiting_topic": SCHEDULE_TOPIC}
    if not found:
        return {**shown, "rows": [], "count": 0, "at": None, "following": None, "delay_ms": None}
    (waiting,) = found
    # All messages of a level wait equally long, so their queue has the order of due times.
    first, end = waiting.next_offset, waiting.next_offset + waiting.pending_count
    at = min(max(request.number("at", first), first), end)
    asked = broker_pb2.PullRequest(
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        offset=at,
        offset_end=min(at + COUNT, end),
        response_bytes_max=RANGE_BYTES_MAX,
    )
    # The broker refuses an empty range, and takes the end 0 as none.
    pulled = await request.call("Broker/Pull", asked) if at < end else broker_pb2.PullResponse()
    following = pulled.next_offset if at < pulled.next_offset < end else None
    return {
        **shown,
        "rows": await asyncio.to_thread(_rows, pulled, waiting.delay_ms),
        "count": waiting.pending_count,
        "at": at if at > first else None,
        "following": following,
        "delay_ms": waiting.delay_ms,
    }


def _rows(pulled: broker_pb2.PullResponse, delay_ms: int) -> list[dict[str, Any]]:
    return [
        {
            **row_of(message, size),
            "due": time_of_ms(ms_of_time(message.store_timestamp) + delay_ms),
            "target": message.properties.get(REAL_TOPIC, ""),
        }
        for message, size in messages_of(pulled)
    ]


PAGES = (Page("/delayed/{level}", "delayed.html", _delayed),)

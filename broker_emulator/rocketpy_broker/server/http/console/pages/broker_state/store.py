"""The store: its files, its disk and its speed, and cleaning."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.segment_waits import WAITS
from rocketpy_broker.server.http.console.page import Done, Page
from rocketpy_broker.server.http.console.pages.broker_state.overview import counters
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Unused topics that the page names before their removal.
TOPICS_NAMED = 100


async def _store(request: PageRequest) -> Mapping[str, object]:
    found = await counters(request)
    info = await request.json("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest())
    log_bytes = found.log_end_offset - found.log_begin_offset
    status = await request.call("Admin/GetBrokerStatus", admin_pb2.GetBrokerStatusRequest())
    return {
        "info": info,
        "status": json_of(status),
        "hours": _hours(status.cleaning),
        "counters": json_of(found),
        "log_bytes": log_bytes,
        # A log without messages has no file.
        "segment_count": -(-log_bytes // max(info["commitLogSegmentBytes"], 1)),
        "waits": WAITS,
    }


def _hours(rules: admin_pb2.CleaningRules) -> str:
    """Returns the hours of scheduled cleaning in words."""
    hours, minutes = divmod(abs(rules.local_offset_minutes), 60)
    zone = f"UTC{'-' if rules.local_offset_minutes < 0 else '+'}{hours:02}:{minutes:02}"
    begins = " and ".join(f"{hour:02}:00" for hour in rules.hours)
    return f"each day in the hour from {begins}, local time of the broker ({zone})"


async def _status(request: PageRequest) -> Mapping[str, object]:
    found: Mapping[str, object] = await request.json(
        "Admin/GetBrokerStatus", admin_pb2.GetBrokerStatusRequest()
    )
    return found


async def _clean(request: PageRequest) -> Mapping[str, object]:
    return {
        "status": await _status(request),
        "info": await request.json("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest()),
    }


async def _clean_segments(request: PageRequest) -> Done:
    await request.call("Admin/CleanExpiredFiles", admin_pb2.CleanExpiredFilesRequest())
    return Done("/store", "cleaned")


async def _unused(request: PageRequest) -> Mapping[str, object]:
    asked = admin_pb2.CleanUnusedTopicsRequest(dry_run=True)
    found = await request.call("Admin/CleanUnusedTopics", asked)
    return {"topics": [*found.topics[:TOPICS_NAMED]], "topic_count": len(found.topics)}


async def _clean_unused(request: PageRequest) -> Done:
    await request.call("Admin/CleanUnusedTopics", admin_pb2.CleanUnusedTopicsRequest())
    return Done("/store", "cleaned")


PAGES = (
    Page("/store", "store.html", _store),
    Page("/store/clean", "store_clean.html", _clean, _clean_segments),
    Page("/store/unused-topics", "store_unused_topics.html", _unused, _clean_unused),
)

"""Topics: the list, and the settings and queues of one topic."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.server.http.api.routes import PAGE_COUNT
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2


async def _topics(request: PageRequest) -> Mapping[str, object]:
    is_system = request.query.get("system") == "on"
    asked = admin_pb2.ListTopicsRequest(
        after=request.query.get("after", ""), count_max=PAGE_COUNT, include_system=is_system
    )
    return {"topics": await request.json("Admin/ListTopics", asked), "is_system": is_system}


PAGES = (Page("/topics", "topics.html", _topics),)

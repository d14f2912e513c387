"""The first page: the state of the broker at a glance."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2


async def _overview(request: PageRequest) -> Mapping[str, object]:
    return {
        "info": await request.json("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest()),
        "status": await request.json("Admin/GetBrokerStatus", admin_pb2.GetBrokerStatusRequest()),
    }


PAGES = (Page("/", "overview.html", _overview),)

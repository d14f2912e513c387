"""The first page: the state of the broker at a glance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.pages.broker_state.alerts import Facts, alerts
from rocketpy_broker.server.http.console.renderer import part
from rocketpy_broker.server.http.console.request import PageRequest, address
from rocketpy_broker.server.http.console.trends import Point, lag_points, lines
from rocketpy_broker.server.security.permissions import PREFIX_MARK, Permissions, permission_text
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.rocketpy.v1 import admin_pb2, transactions_pb2

GROUPS = 10
# Entries of a user's permissions that are shown.
NAMES_MAX = 50
# This sorts after the names of all topics, so the answer has no topics.
NO_TOPICS = "\ufffd"


async def _overview(request: PageRequest) -> Mapping[str, object]:
    principal = request.rights.principal
    if principal is not None and not request.may("Admin/GetBrokerStatus"):
        info = await request.json("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest())
        topics = _own("/topics", principal.topics, request.may_open_topic)
        groups = _own("/groups", principal.groups, request.may_open_group)
        own = [("Topics", "/topics", topics), ("Groups", "/groups", groups)]
        return {"info": info, "is_monitor": False, "own": own}
    facts = Facts(
        await request.call("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest()),
        await request.call("Admin/GetBrokerStatus", admin_pb2.GetBrokerStatusRequest()),
        await counters(request),
        await request.call("Admin/GetHistory", admin_pb2.GetHistoryRequest(count_max=GROUPS)),
        await request.call(
            "Transactions/ListTransactions", transactions_pb2.ListTransactionsRequest(count_max=1)
        ),
        request.now_ms,
    )
    return {
        "is_monitor": True,
        "is_delay_reader": request.may("Broker/Pull", topic=SCHEDULE_TOPIC),
        "info": json_of(facts.info),
        "status": json_of(facts.status),
        "history": json_of(facts.history),
        **_trends(facts.history, request.now_ms),
        "alerts": alerts(facts),
    }


def _trends(history: admin_pb2.GetHistoryResponse, now_ms: int) -> Mapping[str, object]:
    minutes = history.minutes
    return {
        "put_lines": lines(
            (Point(each.end_timestamp_ms, each.put_count) for each in minutes), now_ms
        ),
        "get_lines": lines(
            (Point(each.end_timestamp_ms, each.get_count) for each in minutes), now_ms
        ),
        "lag_lines": lines((Point(each.end_timestamp_ms, each.lag) for each in minutes), now_ms),
        "group_lines": [lines(lag_points(minutes, each.lags), now_ms) for each in history.groups],
    }


def _own(
    path: str, permissions: Permissions, may_open: Callable[[str], bool]
) -> list[tuple[str, str, str]]:
    """Returns the names and prefixes of a user's entries, with the permission and a page."""
    found = []
    for name, actions in islice(sorted(permissions.entries.items()), NAMES_MAX):
        prefix = name.removesuffix(PREFIX_MARK)
        if prefix != name:
            place = address(path, prefix=prefix)
        else:
            place = f"{path}/{part(name)}" if may_open(name) else ""
        found.append((name, permission_text(actions), place))
    if permissions.default:
        found.append(("all other names", permission_text(permissions.default), ""))
    return found


async def counters(request: PageRequest) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters without topics."""
    asked = admin_pb2.GetStoreStatisticsRequest(topics_after=NO_TOPICS)
    found: admin_pb2.GetStoreStatisticsResponse = await request.call(
        "Admin/GetStoreStatistics", asked
    )
    return found


PAGES = (Page("/", "overview.html", _overview),)

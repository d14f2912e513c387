"""The first page: the state of the broker at a glance."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.pages.broker_state.alerts import Facts, alerts
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2, transactions_pb2

GROUPS = 10
# After the names of topics: the answer has none.
NO_TOPICS = "\ufffd"


async def _overview(request: PageRequest) -> Mapping[str, object]:
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
        "info": json_of(facts.info),
        "status": json_of(facts.status),
        "history": json_of(facts.history),
        "lags": [each.lag for each in facts.history.minutes if each.lag >= 0],
        "alerts": alerts(facts),
    }


async def counters(request: PageRequest) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters without topics."""
    asked = admin_pb2.GetStoreStatisticsRequest(topics_after=NO_TOPICS)
    found: admin_pb2.GetStoreStatisticsResponse = await request.call(
        "Admin/GetStoreStatistics", asked
    )
    return found


PAGES = (Page("/", "overview.html", _overview),)

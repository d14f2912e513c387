"""Clients with their groups, and open transactions."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.server.http.api.routes import PAGE_COUNT
from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_proto.model import HALF_TOPIC
from rocketpy_proto.rocketpy.v1 import groups_pb2, transactions_pb2

# Groups of one client.
GROUPS = 10


async def _clients(request: PageRequest) -> Mapping[str, object]:
    after = request.query.get("after", "")
    asked = groups_pb2.ListClientsRequest(after=after, count_max=PAGE_COUNT)
    found = await request.call("Groups/ListClients", asked)
    clients = [
        {
            "id": each.client_id,
            "registrations": [json_of(one) for one in each.registrations[:GROUPS]],
            "more": max(len(each.registrations) - GROUPS, 0),
        }
        for each in found.clients
    ]
    return {"clients": clients, "has_more": found.has_more, "after": after}


async def _transactions(request: PageRequest) -> Mapping[str, object]:
    group = request.query.get("group", "").strip()
    asked = transactions_pb2.ListTransactionsRequest(producer_group=group, count_max=PAGE_COUNT)
    found = await request.call("Transactions/ListTransactions", asked)
    transactions = [
        {**json_of(each), "ageMs": max(request.now_ms - each.born_timestamp_ms, 0)}
        for each in found.transactions
    ]
    return {
        "transactions": transactions,
        "is_complete": found.is_complete,
        "group": group,
        "half_topic": HALF_TOPIC,
    }


PAGES = (
    Page("/clients", "clients.html", _clients),
    Page("/transactions", "transactions.html", _transactions),
)

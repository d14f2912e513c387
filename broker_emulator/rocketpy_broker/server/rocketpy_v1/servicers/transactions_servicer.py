"""The servicer of rocketpy.v1.Transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.transactions.open_transactions import TransactionListing
from rocketpy_broker.services.transactions.service import TransactionService
from rocketpy_proto.rocketpy.v1 import transactions_pb2


class TransactionsServicer:
    """The methods that end and list transactions."""

    def __init__(self, service: TransactionService, listing: TransactionListing) -> None:
        self._service = service
        self._listing = listing

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "EndTransaction": self._service.end,
            "ListTransactions": self._listing.open,
        }
        return all_bounded(transactions_pb2, methods, bytes_max)

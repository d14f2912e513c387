"""The servicer of rocketpy.v1.Transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.transactions.messages import HalfMessage, Operation
from rocketpy_broker.services.transactions.open_transactions import TransactionListing
from rocketpy_broker.services.transactions.service import EndTransaction, TransactionService
from rocketpy_proto.rocketpy.v1 import transactions_pb2

SERVICE_NAME: str = transactions_pb2.DESCRIPTOR.services_by_name["Transactions"].full_name
_DECISIONS = {
    transactions_pb2.COMMIT: Operation.COMMIT,
    transactions_pb2.ROLLBACK: Operation.ROLLBACK,
}


class TransactionsServicer:
    """The methods that end and list transactions."""

    def __init__(
        self, service: TransactionService, listing: TransactionListing, request_bytes_max: int
    ) -> None:
        self._service = service
        self._listing = listing
        self._request_bytes_max = request_bytes_max

    async def end_transaction(
        self, request: transactions_pb2.EndTransactionRequest, _context: status.Context
    ) -> transactions_pb2.EndTransactionResponse:
        """Commits or rolls back a transaction."""
        try:
            await self._service.end(_command(request))
        except BrokerError as error:
            return transactions_pb2.EndTransactionResponse(status=status.failure(error))
        return transactions_pb2.EndTransactionResponse(status=status.success())

    async def list_transactions(
        self, request: transactions_pb2.ListTransactionsRequest, _context: status.Context
    ) -> transactions_pb2.ListTransactionsResponse:
        """Returns open transactions."""
        try:
            found = await self._listing.open(
                request.producer_group, request.transaction_id, request.count_max
            )
        except BrokerError as error:
            return transactions_pb2.ListTransactionsResponse(status=status.failure(error))
        return transactions_pb2.ListTransactionsResponse(
            status=status.success(),
            transactions=[_open_transaction(half) for half in found.halves],
            is_complete=found.is_complete,
        )

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "EndTransaction": self.end_transaction,
            "ListTransactions": self.list_transactions,
        }
        return all_bounded(transactions_pb2, methods, self._request_bytes_max)


def _open_transaction(half: HalfMessage) -> transactions_pb2.OpenTransaction:
    record, queue = half.record, half.real_queue
    return transactions_pb2.OpenTransaction(
        transaction_id=half.transaction_id,
        producer_group=half.producer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_log_offset=record.physical_offset,
        queue_offset=record.queue_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        check_times=half.check_times,
    )


def _command(request: transactions_pb2.EndTransactionRequest) -> EndTransaction:
    decision = _DECISIONS.get(request.resolution)
    if decision is None:
        raise ParameterIllegalError("resolution", request.resolution, "COMMIT or ROLLBACK")
    return EndTransaction(
        request.producer_group,
        request.transaction_id,
        request.commit_log_offset,
        request.queue_offset,
        decision,
        request.from_transaction_check,
    )

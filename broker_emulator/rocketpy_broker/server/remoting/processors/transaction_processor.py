"""Ends of transactions by RocketMQ's producers, which send them one-way.

Source: EndTransactionProcessor, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.errors import TransactionEndError
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.transactions.service import TransactionService
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.sends import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    EndTransactionRequest,
)
from rocketpy_proto.rocketpy.v1 import transactions_pb2

_RESOLUTIONS = {COMMIT: transactions_pb2.COMMIT, ROLLBACK: transactions_pb2.ROLLBACK}


class TransactionProcessor:
    """The processor of the ends of transactions."""

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processor."""
        return {Code.END_TRANSACTION: self._end}

    async def _end(self, request: Request) -> RemotingCommand | None:
        header: EndTransactionRequest = request.header
        if header.commit_or_rollback == UNKNOWN:
            # The broker's check decides later.
            return None
        resolution = _RESOLUTIONS.get(header.commit_or_rollback)
        if resolution is None:
            raise TransactionEndError(
                f"commitOrRollback is {header.commit_or_rollback}, accepted is {UNKNOWN} "
                f"(unknown), {COMMIT} (commit) or {ROLLBACK} (rollback)"
            )
        await self._transactions.end(
            transactions_pb2.EndTransactionRequest(
                producer_group=header.producer_group,
                transaction_id=header.transaction_id,
                commit_log_offset=header.commit_log_offset,
                queue_offset=header.tran_state_table_offset,
                resolution=resolution,
                from_transaction_check=header.is_from_transaction_check,
            )
        )
        return request.answer()

"""The method that ends transactions.

Source: EndTransactionActivity, docs/design/grpc_v2_semantics.md section 10.
"""

from __future__ import annotations

from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.name_rules import check_topic, is_blank
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.server.apache_v2.transaction_id import TransactionId
from rocketpy_broker.services.transactions.service import TransactionService
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.rocketpy.v1 import transactions_pb2

_RESOLUTIONS = {
    v2.COMMIT: transactions_pb2.COMMIT,
    v2.ROLLBACK: transactions_pb2.ROLLBACK,
}


class TransactionServicer:
    """The method EndTransaction."""

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def methods(self) -> Methods:
        """Returns the function by method name."""
        return {"EndTransaction": self._end}

    async def _end(
        self, request: service_pb2.EndTransactionRequest, caller: RequestContext
    ) -> service_pb2.EndTransactionResponse:
        caller.check_client_id()
        name = caller.name_of(request.topic)
        check_topic(name)
        if is_blank(request.transaction_id):
            raise StatusError(
                v2.INVALID_TRANSACTION_ID,
                "the transaction id is blank; send the id that the broker returned for the message",
            )
        if request.resolution == v2.TRANSACTION_RESOLUTION_UNSPECIFIED:
            # The broker asks again with its next check.
            return service_pb2.EndTransactionResponse()
        resolution = _RESOLUTIONS.get(request.resolution)
        if resolution is None:
            raise StatusError(
                v2.BAD_REQUEST,
                f"resolution {request.resolution} is unknown; send COMMIT or ROLLBACK",
            )
        found = TransactionId.decode(request.transaction_id)
        if request.message_id not in {"", found.message_id}:
            raise StatusError(
                v2.INVALID_TRANSACTION_ID,
                f"transaction id {request.transaction_id!r:.200} does not belong to message "
                f"{request.message_id!r:.200}; send both ids that the broker returned for it",
            )
        await self._transactions.end(
            transactions_pb2.EndTransactionRequest(
                producer_group=name,
                transaction_id=found.message_id,
                commit_log_offset=found.commit_log_offset,
                queue_offset=found.queue_offset,
                resolution=resolution,
                # The SDK for Go does not name the source, so it may be a check.
                from_transaction_check=request.source != v2.SOURCE_CLIENT,
            )
        )
        return service_pb2.EndTransactionResponse()

"""Response statuses of `apache.rocketmq.v2`.

Source: ResponseBuilder of RocketMQ's proxy, docs/design/grpc_v2_semantics.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketpy_broker.errors import (
    AccessDeniedError,
    BrokerError,
    QueueIdIllegalError,
    TransactionEndError,
)
from rocketpy_broker.services.delay.errors import TimerFullError
from rocketpy_broker.services.delay.recall import RecallTimeError
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.codes import ResponseCode

_CODES = {
    ResponseCode.SUCCESS: v2.OK,
    ResponseCode.SYSTEM_BUSY: v2.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: v2.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: v2.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: v2.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: v2.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: v2.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: v2.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: v2.BAD_REQUEST,
    ResponseCode.INVALID_PARAMETER: v2.BAD_REQUEST,
    ResponseCode.ILLEGAL_OPERATION: v2.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: v2.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: v2.TOPIC_NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: v2.OFFSET_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: v2.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: v2.CONSUMER_GROUP_NOT_FOUND,
}

# Errors that have a code of their own in this protocol.
_CODES_OF_ERRORS: dict[type, v2.Code] = {
    # A topic without such a queue, or without any.
    QueueIdIllegalError: v2.FORBIDDEN,
    RecallTimeError: v2.ILLEGAL_DELIVERY_TIME,
    TimerFullError: v2.TOO_MANY_REQUESTS,
    TransactionEndError: v2.INVALID_TRANSACTION_ID,
}


class StatusError(BrokerError):
    """A request that the protocol refuses with a code of its own."""

    def __init__(self, status_code: v2.Code, remark: str) -> None:
        super().__init__(remark)
        self.status_code = status_code


def success() -> v2.Status:
    """Returns the status of a successful request; RocketMQ leaves no message empty."""
    return v2.Status(code=v2.OK, message="OK")


def failure(error: BrokerError) -> v2.Status:
    """Returns the status that reports `error` to a client."""
    return v2.Status(code=code_of(error), message=error.remark)


def code_of(error: BrokerError) -> v2.Code:
    """Returns the code of an error: INTERNAL_SERVER_ERROR for one without an entry in the table."""
    if isinstance(error, StatusError):
        return error.status_code
    if isinstance(error, AccessDeniedError):
        return v2.UNAUTHORIZED
    code = _CODES_OF_ERRORS.get(type(error))
    return code or _CODES.get(error.code, v2.INTERNAL_SERVER_ERROR)


def common(statuses: Iterable[v2.Status]) -> v2.Status:
    """Returns a response's status: its entries' common one, or MULTIPLE_RESULTS."""
    each = list(statuses)
    if len({status.code for status in each}) == 1:
        return each[0]
    return v2.Status(code=v2.MULTIPLE_RESULTS, message="the entries have different results")

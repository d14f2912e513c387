"""Response statuses of declared errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import common_pb2

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


def success() -> common_pb2.Status:
    """Returns the status of a successful request."""
    return common_pb2.Status(code=ResponseCode.SUCCESS)


def failure(error: BrokerError) -> common_pb2.Status:
    """Returns the status that reports `error` to a client."""
    return common_pb2.Status(code=error.code, remark=error.remark)

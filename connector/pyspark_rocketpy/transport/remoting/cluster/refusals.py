"""Refusals of brokers, for readers: pass, fail, or hidden queue.

Source: docs/design/remoting.md section 2.5, docs/design/cluster.md sections 2.4 and 2.5.
"""

from __future__ import annotations

from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    TopicNotExistError,
)
from rocketpy_proto.remoting import ResponseCode

# 4.9 answers with a system error.
_QUEUE_CODES = frozenset({ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR})
_QUEUE_REMARK = "queueId["
# A slave answers so for its topics and groups for a moment, once a minute.
_PASSING_AT_SLAVES = frozenset({ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})


def is_passing(error: ConnectionFailedError | BrokerError, *, is_slave: bool = False) -> bool:
    """True if the request may be repeated.

    An unknown topic may pass, too: its only broker may be away.
    """
    if isinstance(error, ConnectionFailedError | BrokerBusyError | TopicNotExistError):
        return True
    return is_slave and error.response_code in _PASSING_AT_SLAVES


def is_hidden_queue(error: ConnectionFailedError | BrokerError) -> bool:
    """True if a broker answers that its topic has fewer queues for reading."""
    is_code = isinstance(error, BrokerError) and error.response_code in _QUEUE_CODES
    return is_code and _QUEUE_REMARK in str(error)


def with_advice(
    error: ConnectionFailedError | BrokerError, *, is_sql: bool
) -> ConnectionFailedError | BrokerError:
    """Returns the error, with advice if there is any."""
    if is_sql and isinstance(error, BrokerError) and "SQL92" in str(error):
        return BrokerError(
            f"{error}; option filter needs enablePropertyFilter=true in the configuration of "
            "every broker that is read; filter by option tags, or in Spark, where that is not so",
            response_code=error.response_code,
        )
    return error

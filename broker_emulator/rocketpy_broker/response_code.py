"""RocketMQ's response codes that this broker uses."""

from __future__ import annotations

from enum import IntEnum


class ResponseCode(IntEnum):
    """A response code of the remoting protocol.

    Source: docs/design/storage.md sections 2.5 and 9.3.
    """

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    FLUSH_DISK_TIMEOUT = 10
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    INVALID_PARAMETER = 29
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604

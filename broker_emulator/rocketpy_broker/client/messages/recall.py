"""Recall of messages that wait for their delivery time."""

from __future__ import annotations

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection
from rocketpy_proto.model.recall_handle import RecallHandle
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2


def recall_handle(
    connection: BrokerConnection, topic: str, deliver_ms: int, unique_key: str
) -> str:
    """Returns the recall handle of a message with TIMER_DELIVER_MS; it stays valid.

    Raises UnreachableError, RefusedError.
    """
    request = admin_pb2.GetBrokerInfoRequest()
    info: admin_pb2.GetBrokerInfoResponse = connection.ask(
        lambda: connection.admin.GetBrokerInfo(request, timeout=REQUEST_SECONDS_MAX)
    )
    return RecallHandle.of_message(topic, info.broker_name, deliver_ms, unique_key).encode()


def recall_message(connection: BrokerConnection, topic: str, handle: str) -> str:
    """Recalls the message if it still waits; returns its unique key.

    Raises UnreachableError, RefusedError.
    """
    request = broker_pb2.RecallMessageRequest(topic=topic, recall_handle=handle)
    response: broker_pb2.RecallMessageResponse = connection.ask(
        lambda: connection.broker.RecallMessage(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response.msg_id

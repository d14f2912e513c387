"""Recall of messages that wait for their delivery time."""

from __future__ import annotations

from rocketpy_broker.client.brokers import broker_info
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_proto.model.recall_handle import RecallHandle
from rocketpy_proto.rocketpy.v1 import broker_pb2


def recall_handle(
    connection: BrokerConnection, topic: str, deliver_ms: int, unique_key: str
) -> str:
    """Returns the recall handle of a message; `deliver_ms` is its TIMER_DELIVER_MS.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    broker_name = broker_info(connection).broker_name
    return RecallHandle.of_message(topic, broker_name, deliver_ms, unique_key).encode()


def recall_message(connection: BrokerConnection, topic: str, handle: str) -> str:
    """Recalls the message if it still waits; returns its unique key.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = broker_pb2.RecallMessageRequest(topic=topic, recall_handle=handle)
    return str(connection.ask(connection.broker.RecallMessage, request).msg_id)

"""Records of sent messages.

Source: SendMessageActivity#buildMessage, docs/design/grpc_v2_semantics.md section 7.3.
"""

from __future__ import annotations

import contextlib

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.server.apache_v2.property_names import BORN_HOST, TRACE_CONTEXT
from rocketpy_broker.server.apache_v2.receives.requests import milliseconds
from rocketpy_broker.services.transactions.messages import IMMUNITY_SECONDS
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record import UNKNOWN_HOST, Host, Record, RecordError, encode_record
from rocketpy_proto.record.properties import (
    KEY_SEPARATOR,
    KEYS,
    PRIORITY,
    PRODUCER_GROUP,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
)
from rocketpy_proto.record.sys_flag import COMPRESSED

# A later born time is a client's error; the broker's time replaces it.
_BORN_MS_MAX = 1 << 48


def encoded(
    topic: str, message: v2.Message, address: str, now_ms: int, added: dict[str, str]
) -> bytes:
    """Returns the record of a checked message of `topic`, sent from `address` (host:port).

    `added` are the properties of the broker. Raises RecordIllegalError.
    """
    system = message.system_properties
    born_ms = milliseconds(system.born_timestamp)
    record = Record(
        topic,
        0,
        message.body,
        {**message.user_properties, **_properties(topic, system, address), **added},
        sys_flag=COMPRESSED if system.body_encoding == v2.GZIP else 0,
        born_timestamp_ms=born_ms if 0 < born_ms < _BORN_MS_MAX else now_ms,
        born_host=_host(address),
    )
    try:
        return encode_record(record)
    except RecordError as error:
        raise RecordIllegalError(str(error)) from error


def deliver_ms(system: v2.SystemProperties) -> int | None:
    """Returns the delivery time of a message in ms; None without one."""
    if not system.HasField("delivery_timestamp"):
        return None
    return max(milliseconds(system.delivery_timestamp), 0)


def _properties(topic: str, system: v2.SystemProperties, address: str) -> dict[str, str]:
    """Returns the properties of a message that brokers and clients interpret."""
    delivery_ms = deliver_ms(system)
    properties = {
        UNIQ_KEY: system.message_id,
        TAGS: system.tag,
        KEYS: KEY_SEPARATOR.join(filter(None, system.keys)),
        SHARDING_KEY: system.message_group,
        TRACE_CONTEXT: system.trace_context,
        BORN_HOST: system.born_host.strip() or address.rpartition(":")[0],
        PRIORITY: str(system.priority) if system.HasField("priority") else "",
        TIMER_DELIVER_MS: "" if delivery_ms is None else str(delivery_ms),
    }
    if system.message_type == v2.TRANSACTION:
        properties[TRAN_MSG] = "true"
        # A producer is a member of a group for each of its topics.
        properties[PRODUCER_GROUP] = topic
        seconds = system.orphaned_transaction_recovery_duration.seconds
        properties[IMMUNITY_SECONDS] = str(seconds) if seconds else ""
    return properties


def _host(address: str) -> Host:
    """Returns the peer's host; an unknown one for a peer without an IP address."""
    with contextlib.suppress(ValueError):
        return Host.parse(address)
    return UNKNOWN_HOST

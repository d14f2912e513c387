"""Checks of messages against their topic's attribute `message.type`.

A message is of type TRANSACTION, DELAY, FIFO, PRIORITY or NORMAL, by its properties, in this order.
A topic without the attribute accepts all types, as in RocketMQ's broker; its proxy would accept
NORMAL only. Messages that the broker itself stores, such as messages sent back, are not checked.
Source: docs/design/grpc_v2_semantics.md sections 4 and 7.2.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_proto.model import (
    DELAY,
    FIFO,
    MESSAGE_TYPE,
    MESSAGE_TYPES,
    MIXED,
    NORMAL,
    TRANSACTION,
)
from rocketpy_proto.model import PRIORITY as PRIORITY_TYPE
from rocketpy_proto.model import UNSPECIFIED as ANY
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import RecordBlock, property_column
from rocketpy_proto.record.properties import PRIORITY, SHARDING_KEY, TRAN_MSG, WAITING_NAMES

_UNCHECKED = frozenset({None, ANY, MIXED})


def check_message_type(topic: TopicConfig, block: RecordBlock, *, may_wait: bool) -> None:
    """Raises RecordIllegalError for a record of another type than the topic's.

    Any thread may call it.

    With `may_wait` a record may have a property that delays it.
    """
    wanted = accepted_type(topic)
    if wanted is None:
        return
    types = types_of(block, may_wait=may_wait)
    wrong = np.flatnonzero(types != wanted)
    if len(wrong):
        row = int(wrong[0])
        raise RecordIllegalError(
            f"message {row} of the block is of type {types[row]}, and topic {topic.topic!r} has "
            f"the message type {wanted}. Send it to another topic, or change the topic's type"
        )


def accepted_type(topic: TopicConfig) -> str | None:
    """Returns the only type of messages that a topic accepts; None if it accepts all."""
    wanted = topic.attributes.get(MESSAGE_TYPE)
    return None if wanted in _UNCHECKED or wanted not in MESSAGE_TYPES else wanted


def types_of(block: RecordBlock, *, may_wait: bool) -> NDArray[np.object_]:
    """Returns the type of each record."""
    types = np.full(len(block), NORMAL, object)
    types[_has(block, PRIORITY)] = PRIORITY_TYPE
    types[_has(block, SHARDING_KEY)] = FIFO
    if may_wait:
        for name in WAITING_NAMES - {TRAN_MSG}:
            types[_has(block, name)] = DELAY
        lowered = pc.utf8_lower(property_column(block, TRAN_MSG))
        is_half = pc.equal(lowered, "true").fill_null(False).to_numpy(zero_copy_only=False)
        # A failed message that an old client sends again is no half message: see `is_half`.
        is_half &= (types != DELAY) | (block.header["reconsume_times"] == 0)
        types[is_half] = TRANSACTION
    return types


def _has(block: RecordBlock, name: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (
        property_column(block, name).is_valid().to_numpy(zero_copy_only=False)
    )
    return found

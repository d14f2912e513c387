"""Lookup of send-back messages, a bounded number at a time.

RocketMQ takes any record at the offset. Here a caller may name the expected message, since rows of
a DataFrame may come from another broker. The broker's own records cannot be sent back.
Source: docs/design/broker_behaviour.md section 6.1, step 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import BrokerError, SendBackError
from rocketpy_broker.services import caller
from rocketpy_broker.services.send.record_copy import Origins
from rocketpy_broker.services.topics.system import SEND_FORBIDDEN
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model import RESERVED_PREFIX
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.rocketpy.v1 import retry_pb2

# Messages and bytes per scheduler slot.
SLOT_MESSAGES = 64
SLOT_BYTES = 256 << 10
SendBack = retry_pb2.MessageToSendBack


@dataclass(frozen=True, slots=True)
class Found:
    """Some messages: `faults` has an entry for each, None if the record is in `block`.

    `delay_levels` has an entry for each record.
    """

    faults: Sequence[BrokerError | None]
    block: RecordBlock | None
    delay_levels: NDArray[np.int64]
    bytes: int


class MessagesToSendBack:
    """The lookup of messages in one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def from_(self, messages: Sequence[SendBack], begin: int) -> Found:
        """Returns messages from `begin` on, one or more, up to the limits of a scheduler slot."""
        faults: list[BrokerError | None] = []
        parts: list[memoryview] = []
        wanted: list[SendBack] = []
        bytes_found = 0
        for message in messages[begin : begin + SLOT_MESSAGES]:
            offset = message.commit_log_offset
            part = self._store.messages.at(offset) if offset >= 0 else None
            if part is None:
                faults.append(_not_found(message, "no message starts there"))
                continue
            if parts and bytes_found + len(part) > SLOT_BYTES:
                break
            faults.append(None)
            parts.append(part)
            wanted.append(message)
            bytes_found += len(part)
        if not parts:
            return Found(faults, None, np.empty(0, np.int64), 0)
        block = RecordBlock.parse(bytearray().join(parts))
        return _checked(faults, wanted, block, bytes_found)


def _checked(
    faults: list[BrokerError | None],
    wanted: Sequence[SendBack],
    block: RecordBlock,
    bytes_found: int,
) -> Found:
    """Returns the messages without the records that are not the expected messages."""
    places = [place for place, fault in enumerate(faults) if fault is None]
    reasons = _reasons(wanted, Origins.of(block))
    for place, message, reason in zip(places, wanted, reasons, strict=True):
        faults[place] = None if reason is None else _not_found(message, reason)
    is_good = np.array([reason is None for reason in reasons])
    levels = np.array([message.delay_level for message in wanted], np.int64)[is_good]
    kept = block.filter(is_good) if is_good.any() else None
    return Found(faults, kept, levels, bytes_found)


def _reasons(wanted: Sequence[SendBack], origins: Origins) -> list[str | None]:
    """Returns why each record is not the expected message; None if it is."""
    columns = (
        origins.topics.to_pylist(),
        origins.first_topics.to_pylist(),
        origins.offset_ids.to_pylist(),
        origins.first_ids.to_pylist(),
        origins.unique_keys.to_pylist(),
    )
    reasons: list[str | None] = []
    for message, topic, first_topic, *ids in zip(wanted, *columns, strict=True):
        reason = None
        if topic in SEND_FORBIDDEN or topic.startswith(RESERVED_PREFIX):
            reason = f"a record there is of the broker's own topic {topic!r}"
        elif not caller.may_read(topic):
            reason = "the message there is of a topic that the caller's user may not read"
        elif message.origin_topic and message.origin_topic not in (topic, first_topic):
            reason = (
                f"the message there is of topic {topic!r}, not of {message.origin_topic!r:.200}"
            )
        elif message.origin_msg_id and message.origin_msg_id not in ids:
            reason = f"the message there does not have the id {message.origin_msg_id!r:.200}"
        reasons.append(reason)
    return reasons


def _not_found(message: SendBack, reason: str) -> SendBackError:
    return SendBackError(
        f"look message by offset failed, {message.commit_log_offset}: {reason}; it may be "
        "cleaned, or another broker has it"
    )

"""Rules of sent messages, in the order of RocketMQ's proxy.

A failed rule refuses the whole request; nothing of it is stored.
Source: SendMessageActivity, GrpcValidator, docs/design/grpc_v2_semantics.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketpy_broker.config import DAY_MS, BrokerConfig
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.time_format import duration_of_ms, time_of_ms
from rocketpy_broker.server.apache_v2.name_rules import has_control_character, is_blank
from rocketpy_broker.server.apache_v2.property_names import RESERVED_NAMES
from rocketpy_broker.server.apache_v2.receives.requests import milliseconds
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2

# Each message is checked and encoded on its own. This number takes some milliseconds.
MESSAGES_MAX = 128
USER_PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16_384
GROUP_BYTES_MAX = 63
MESSAGE_ID_CHARACTERS_MAX = 255
DELAY_MS_MAX = DAY_MS
RECOVERY_SECONDS_MAX = 3_600
_ENCODINGS, _TYPES = v2.Encoding.values(), v2.MessageType.values()


@dataclass(frozen=True, slots=True)
class SendRules:
    """The rules with a broker's limits."""

    config: BrokerConfig
    clock: Clock

    def check_all(self, messages: Sequence[v2.Message]) -> None:
        """Raises StatusError for the first illegal message, or for messages of several topics."""
        if any(each.topic != messages[0].topic for each in messages):
            raise StatusError(
                v2.MESSAGE_CORRUPTED, "the messages are of several topics; send one request a topic"
            )
        for each in messages:
            self._check_body(each.body)
            for check in _CHECKS:
                check(each)
            self._check_delivery_time(each.system_properties)
            _check_group(each.system_properties)

    def _check_body(self, body: bytes) -> None:
        if not body:
            raise StatusError(v2.MESSAGE_BODY_EMPTY, "the body is empty; send at least one byte")
        bytes_max = self.config.limits.body_bytes_max
        if len(body) > bytes_max:
            raise StatusError(
                v2.MESSAGE_BODY_TOO_LARGE,
                f"the body has {len(body)} bytes, limit {bytes_max}. Send smaller messages",
            )

    def _check_delivery_time(self, system: v2.SystemProperties) -> None:
        if not system.HasField("delivery_timestamp"):
            return
        delay_ms_max = min(DELAY_MS_MAX, self.config.timer_delay_ms_max)
        deliver_ms = milliseconds(system.delivery_timestamp)
        if deliver_ms - self.clock.now_ms() > delay_ms_max:
            raise StatusError(
                v2.ILLEGAL_DELIVERY_TIME,
                f"the delivery time is {time_of_ms(deliver_ms)}, limit "
                f"{duration_of_ms(delay_ms_max)} from now. Send the message later",
            )


def _check_properties(message: v2.Message) -> None:
    properties = message.user_properties
    if len(properties) > USER_PROPERTIES_MAX:
        raise StatusError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(properties)} user properties, limit {USER_PROPERTIES_MAX}. Send "
            "fewer",
        )
    reserved = RESERVED_NAMES.intersection(properties)
    if reserved:
        raise StatusError(
            v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
            f"the property name {min(reserved)!r} is reserved; use another name",
        )
    for key, value in properties.items():
        if not key or has_control_character(key) or has_control_character(value):
            raise StatusError(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {key!r:.200} has an empty name, or a control character in its name "
                "or value; remove it",
            )


def _check_tag(message: v2.Message) -> None:
    system = message.system_properties
    if not system.HasField("tag"):
        return
    if is_blank(system.tag) or "|" in system.tag or has_control_character(system.tag):
        raise StatusError(
            v2.ILLEGAL_MESSAGE_TAG,
            f"the tag {system.tag!r:.200} is illegal; use one with a visible character, and "
            "without '|' and control characters",
        )


def _check_keys(message: v2.Message) -> None:
    for key in message.system_properties.keys:
        if key and (is_blank(key) or has_control_character(key)):
            raise StatusError(
                v2.ILLEGAL_MESSAGE_KEY,
                f"the key {key!r:.200} is illegal; use one with a visible character, and without "
                "control characters",
            )


def _check_size(message: v2.Message) -> None:
    system = message.system_properties
    texts = [*message.user_properties, *message.user_properties.values(), system.tag, *system.keys]
    size = sum(len(text.encode()) for text in texts)
    if size > PROPERTIES_BYTES_MAX:
        raise StatusError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} bytes, limit {PROPERTIES_BYTES_MAX}. Shorten "
            "them",
        )


def _check_message_id(message: v2.Message) -> None:
    message_id = message.system_properties.message_id
    too_long = len(message_id) > MESSAGE_ID_CHARACTERS_MAX
    if is_blank(message_id) or too_long or has_control_character(message_id):
        raise StatusError(
            v2.ILLEGAL_MESSAGE_ID,
            f"the message id {message_id!r:.100} is illegal; use 1 to {MESSAGE_ID_CHARACTERS_MAX} "
            "visible characters",
        )


def _check_recovery(message: v2.Message) -> None:
    system = message.system_properties
    if system.message_type != v2.TRANSACTION:
        return
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if not 0 <= seconds <= RECOVERY_SECONDS_MAX:
        raise StatusError(
            v2.BAD_REQUEST,
            f"the recovery duration of the transaction is {seconds} seconds, accepted is 0 to "
            f"{RECOVERY_SECONDS_MAX}",
        )


def _check_enums(message: v2.Message) -> None:
    """Raises StatusError for enum values of later protocols: no record can keep them."""
    system = message.system_properties
    if system.body_encoding not in _ENCODINGS or system.message_type not in _TYPES:
        raise StatusError(
            v2.BAD_REQUEST,
            f"the message has the body encoding {system.body_encoding} and the type "
            f"{system.message_type}; this broker knows {_ENCODINGS} and {_TYPES}",
        )


def _check_group(system: v2.SystemProperties) -> None:
    group = system.message_group
    if not group:
        return
    is_long = len(group.encode()) > GROUP_BYTES_MAX
    if is_blank(group) or is_long or has_control_character(group):
        raise StatusError(
            v2.ILLEGAL_MESSAGE_GROUP,
            f"the message group {group!r:.200} is illegal; use 1 to {GROUP_BYTES_MAX} bytes with "
            "a visible character, and without control characters",
        )


_CHECKS: tuple[Callable[[v2.Message], None], ...] = (
    _check_properties,
    _check_tag,
    _check_keys,
    _check_size,
    _check_message_id,
    _check_recovery,
    _check_enums,
)


def check_type(message: v2.Message) -> None:
    """Raises StatusError for a lite message, or one with features of several types."""
    system = message.system_properties
    if system.lite_topic or system.message_type == v2.LITE:
        raise StatusError(
            v2.UNSUPPORTED,
            "this broker has no lite topics; send the message without one to a normal topic",
        )
    features = {
        "a transaction": system.message_type == v2.TRANSACTION,
        "a delivery time": system.HasField("delivery_timestamp"),
        "a message group": bool(system.message_group),
        "a priority": system.HasField("priority"),
    }
    found = [name for name, is_there in features.items() if is_there]
    if len(found) > 1:
        raise StatusError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message has {' and '.join(found)}; a message may have one of these",
        )

"""Messages to send, read from JSON.

    {"body": "…", "tags": "paid", "keys": ["order-17"], "properties": {"shop": "3"}, "queueId": 0}

`bodyBase64` may replace `body`. `delayLevel` or `deliverAt` delays the message. Other fields of a
stored message's JSON are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime

from rocketpy_broker.messages.outgoing_message import OutgoingMessage, WaitArguments, fault_of_wait
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import parsed_time

BODY, BODY_BASE64 = "body", "bodyBase64"
TAKEN = (BODY, BODY_BASE64, "tags", "keys", "properties", "queueId", "delayLevel", "deliverAt")
_PASSED_OVER = frozenset(
    {"topic", "queueOffset", "msgId", "offsetMsgId", "bornTimestamp", "storeTimestamp"}
    | {"reconsumeTimes"}
)


def json_message(line: bytes) -> OutgoingMessage:
    """Returns the message of a JSON object. Raises ValueError with the fault."""
    try:
        fields = json.loads(line)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _wrong("it", fields, "a JSON object")
    unknown = fields.keys() - {*TAKEN, *_PASSED_OVER}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}; accepted are {', '.join(TAKEN)}")
    return OutgoingMessage(
        _body(fields),
        _tags(fields.get("tags")),
        _keys(fields.get("keys")),
        _properties(fields.get("properties")),
        _number("queueId", fields.get("queueId")),
        _number("delayLevel", fields.get("delayLevel")) or 0,
        _deliver_at(fields.get("deliverAt")),
    )


def _body(fields: dict[str, object]) -> bytes:
    if (BODY in fields) == (BODY_BASE64 in fields):
        raise ValueError(f"needs one of {BODY} and {BODY_BASE64}")
    name = BODY if BODY in fields else BODY_BASE64
    text = fields[name]
    if not isinstance(text, str):
        raise _wrong(name, text, "a text")
    try:
        return text.encode() if name == BODY else base64.b64decode(text, validate=True)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode") from error
    except binascii.Error as error:
        raise ValueError(f"{name} is no base64 ({error})") from error


def _tags(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise _wrong("tags", value, "a text")


def _keys(value: object) -> tuple[str, ...]:
    keys = [] if value is None else value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise _wrong("keys", value, "a list of texts")
    return tuple(keys)


def _properties(value: object) -> dict[str, str]:
    properties = {} if value is None else value
    if not isinstance(properties, dict):
        raise _wrong("properties", value, "an object of texts")
    for name, text in properties.items():
        if not isinstance(text, str):
            raise _wrong(f"property {name!r}", text, "a text")
    now_ms = SystemClock().now_ms()
    fault = fault_of_wait(properties, now_ms, WaitArguments("delayLevel", "deliverAt"))
    if fault is not None:
        raise ValueError(fault)
    return properties


def _number(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, "a whole number")
    return value


def _deliver_at(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong("deliverAt", value, "a text")
    return parsed_time(value)


def _wrong(name: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{name} is {_shown(value)}, accepted is {wanted}")


def _shown(value: object) -> str:
    """Returns a value as JSON of at most 60 characters."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."

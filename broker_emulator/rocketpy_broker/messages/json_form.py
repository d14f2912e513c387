"""JSON of messages."""

from __future__ import annotations

import base64

from rocketpy_broker.messages.outgoing_message import SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.runtime.time_format import time_text

# Characters that a text may have although they are not printable.
_SPACES = str.maketrans("", "", "\n\r\t")
# Characters of one check; a longer one would hold the GIL for milliseconds.
_STEP = 100_000


def json_of(message: Message) -> dict[str, object]:
    """Returns a message as JSON, with the field names of `message send --file`."""
    error = message.body_error
    fault = {} if error is None else {"bodyError": error}
    return {**head_of(message), **body_of(message.body), **fault}


def body_of(content: bytes) -> dict[str, object]:
    """Returns a body as text, or else in base64."""
    text = text_of(content)
    return {"bodyBase64": base64.b64encode(content).decode()} if text is None else {"body": text}


def head_of(message: Message) -> dict[str, object]:
    """Returns a message as JSON without its body."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "bornTimestamp": time_text(message.born_timestamp),
        "storeTimestamp": time_text(message.store_timestamp),
        "reconsumeTimes": message.reconsume_times,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
    }


def json_of_sent(sent: SentMessage) -> dict[str, object]:
    """Returns the place of a sent message as JSON."""
    return {
        "queueId": sent.queue_id,
        "queueOffset": sent.queue_offset,
        "msgId": sent.msg_id,
    }


def text_of(body: bytes) -> str | None:
    """Returns the body as text; None if it is not printable text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    steps = (text[begin : begin + _STEP] for begin in range(0, len(text), _STEP))
    return text if all(step.translate(_SPACES).isprintable() for step in steps) else None

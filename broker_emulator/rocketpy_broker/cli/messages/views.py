"""Messages and sent messages as lines and tables."""

from __future__ import annotations

import base64

from rocketpy_broker.cli.output import (
    ABSENT,
    LINE_CHARACTERS_MAX,
    Cell,
    printable,
    shortened,
)
from rocketpy_broker.client.messages.resend import ResentMessage
from rocketpy_broker.messages.json_form import json_of_sent, text_of
from rocketpy_broker.messages.outgoing_message import SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.runtime.time_format import time_text

BASE64_MARK = "base64:"
# The limit of each text in a line for a message.
TAIL_CHARACTERS_MAX = 200


def line_of(message: Message, *, is_whole: bool = False) -> list[Cell]:
    """Returns store time, queue, offset, tags, keys and body; cuts texts unless `is_whole`.

    The fault of a body that cannot be inflated follows the body.
    """
    tags, keys = message.tags or ABSENT, ",".join(message.keys) or ABSENT
    return [
        time_text(message.store_timestamp),
        message.queue_id,
        message.queue_offset,
        tags if is_whole else shortened(tags, TAIL_CHARACTERS_MAX),
        keys if is_whole else shortened(keys, TAIL_CHARACTERS_MAX),
        _shown_body(message, None if is_whole else TAIL_CHARACTERS_MAX),
    ]


def fields_of(message: Message) -> list[list[Cell]]:
    """Returns all fields of a message by name."""
    fields: list[list[Cell]] = [
        ["topic", message.topic],
        ["queue", f"{message.queue_id}, offset {message.queue_offset}"],
        ["log offset", message.commit_log_offset],
        ["msgId", message.msg_id],
        ["offsetMsgId", message.offset_msg_id],
        ["born", f"{time_text(message.born_timestamp)} at {message.born_host}"],
        ["stored", f"{time_text(message.store_timestamp)} at {message.store_host}"],
        ["reconsumeTimes", message.reconsume_times],
        ["tags", message.tags or ABSENT],
        ["keys", " ".join(message.keys) or ABSENT],
    ]
    fields += [[f"property {name}", value] for name, value in sorted(message.properties.items())]
    fields.append(["body", _shown_body(message, LINE_CHARACTERS_MAX)])
    return fields


def json_of_resent(resent: ResentMessage) -> dict[str, object]:
    """Returns the topic and place of a resent message as JSON."""
    error = resent.message.body_error
    fault = {} if error is None else {"bodyError": error}
    return {"topic": resent.topic, **json_of_sent(resent.sent), **fault}


def line_of_resent(name: str, resent: ResentMessage) -> str:
    """Returns the line for a resent message called `name`."""
    error = resent.message.body_error
    as_stored = "" if error is None else f" (with its body as stored, because it {error})"
    return printable(f"sent {name} to {resent.topic}: {place_of_sent(resent.sent)}{as_stored}")


def place_of_sent(sent: SentMessage) -> str:
    """Returns queue, offset and id of a sent message as text."""
    offset = "comes later" if sent.queue_offset is None else sent.queue_offset
    return f"queue {sent.queue_id}, offset {offset}, id {sent.msg_id}"


def _shown_body(message: Message, characters_max: int | None) -> str:
    """Returns a body on one line.

    A cut body is followed by its size, a damaged one by its fault.
    """
    shown = _on_one_line(message.body, characters_max)
    error = message.body_error
    return shown if error is None else f"{shown} (as stored: it {error})"


def _on_one_line(body: bytes, characters_max: int | None) -> str:
    text = text_of(body)
    if text is not None:
        shown = printable(text)
    elif characters_max is None:
        shown = BASE64_MARK + base64.b64encode(body).decode()
    else:
        # The base64 text is longer than the limit, so the cut is shown.
        shown = BASE64_MARK + base64.b64encode(body[:characters_max]).decode()
    if characters_max is None or len(shown) <= characters_max:
        return shown
    return f"{shown[:characters_max]}… ({len(body)} bytes)"

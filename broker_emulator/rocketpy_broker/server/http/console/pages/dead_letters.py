"""Dead letters of a group, their repeated sends, and edited copies.

A dead letter stays one when it is sent again, so a send that fails loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.messages.copies import origin_topic, topic_of_copy
from rocketpy_broker.messages.json_form import head_of, text_of
from rocketpy_broker.messages.outgoing_message import OutgoingMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.server.http.api.calls import RefusedCallError, Resends
from rocketpy_broker.server.http.api.routes import RANGE_BYTES_MAX
from rocketpy_broker.server.http.api.sends import ApiSender, check_message
from rocketpy_broker.server.http.console.message_views import body_view, messages_of, row_of
from rocketpy_broker.server.http.console.page import Done, Page, PartlyDoneError
from rocketpy_broker.server.http.console.pages.group_actions import details_of, group_path
from rocketpy_broker.server.http.console.pages.send_form import (
    BODY_CHARACTERS_MAX,
    check_waits,
    properties_of,
)
from rocketpy_broker.server.http.console.renderer import counted
from rocketpy_broker.server.http.console.request import PageRequest, address, number_of
from rocketpy_proto.model import dead_letter_topic
from rocketpy_proto.record.compression import inflated_or_stored
from rocketpy_proto.record.properties import NOT_COPIED_NAMES
from rocketpy_proto.record.sys_flag import COMPRESSED
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

PAGE_LETTERS = 25
# Letters, and bytes of their bodies, that one request sends.
LETTERS_A_REQUEST, BYTES_A_REQUEST = 100, 16 << 20


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The first offset of a group's dead letters, and the offset after the last."""

    begin: int
    end: int


async def _bounds(request: PageRequest) -> _Bounds:
    """Returns the bounds. Raises RefusedCallError for a missing group without dead letters."""
    topic = dead_letter_topic(request.places["group"])
    asked = admin_pb2.ListTopicQueuesRequest(topic=topic, count_max=1)
    found = await request.found("Admin/ListTopicQueues", asked)
    if found is None:
        await details_of(request)
        return _Bounds(0, 0)
    queue = found.queues[0]
    return _Bounds(queue.min_offset, queue.max_offset)


# --- The list ---


async def _letters(request: PageRequest) -> Mapping[str, object]:
    bounds, group = await _bounds(request), request.places["group"]
    is_oldest = request.query.get("order") == "oldest"
    if is_oldest:
        begin = min(max(request.number("at", bounds.begin), bounds.begin), bounds.end)
        end = min(begin + PAGE_LETTERS, bounds.end)
        following = end if end < bounds.end else None
    else:
        end = max(min(request.number("at", bounds.end), bounds.end), bounds.begin)
        begin = max(end - PAGE_LETTERS, bounds.begin)
        following = begin if begin > bounds.begin else None
    rows = await _rows(request, begin, end)
    return {
        "group": group,
        "letters": rows if is_oldest else rows[::-1],
        "count": bounds.end - bounds.begin,
        "bounds": bounds,
        "is_oldest": is_oldest,
        "following": following,
    }


async def _rows(request: PageRequest, begin: int, end: int) -> list[dict[str, Any]]:
    """Returns the letters of a range as a list shows them."""
    topic, place = dead_letter_topic(request.places["group"]), begin
    rows: list[dict[str, Any]] = []
    while place < end:
        asked = broker_pb2.PullRequest(
            topic=topic, offset=place, offset_end=end, response_bytes_max=RANGE_BYTES_MAX
        )
        pulled = await request.call("Broker/Pull", asked)
        # Long and compressed records take milliseconds.
        rows += await asyncio.to_thread(_rows_of, pulled, request.calls.resends)
        if pulled.next_offset <= place:
            break
        place = pulled.next_offset
    return rows


def _rows_of(pulled: broker_pb2.PullResponse, resends: Resends) -> list[dict[str, Any]]:
    return [
        {
            **row_of(message, size),
            "origin": origin_topic(message),
            "resent": _resent(message, resends),
        }
        for message, size in messages_of(pulled)
    ]


def _resent(letter: Message, resends: Resends) -> str | None:
    """Returns the time of a letter's last send; None if none is remembered."""
    sent_ms = resends.sent_ms(letter.commit_log_offset)
    return None if sent_ms is None else time_of_ms(sent_ms)


# --- One letter ---


def _sending(request: PageRequest) -> ApiSender:
    return ApiSender(request.calls, request.caller, request.now_ms)


async def _letter_at(request: PageRequest, offset: int) -> Message:
    """Returns a letter. Raises MessageNotExistError, RefusedCallError."""
    group = request.places["group"]
    asked = broker_pb2.PullRequest(
        topic=dead_letter_topic(group), offset=offset, offset_end=offset + 1
    )
    return await _sending(request).letter(group, asked)


async def _named(request: PageRequest) -> Message:
    """Returns the letter of the request's path."""
    return await _letter_at(request, number_of("offset", request.places["offset"]))


async def _letter(request: PageRequest) -> Mapping[str, object]:
    letter, bounds = await _named(request), await _bounds(request)
    offset = letter.queue_offset
    return {
        "group": request.places["group"],
        "offset": offset,
        "letter": head_of(letter),
        "origin": origin_topic(letter),
        "resent": _resent(letter, request.calls.resends),
        "to": topic_of_copy(letter, request.places["group"]),
        "body": await asyncio.to_thread(body_view, letter),
        "earlier": offset - 1 if offset > bounds.begin else None,
        "later": offset + 1 if offset + 1 < bounds.end else None,
    }


# --- An edited copy ---


def _text(letter: Message) -> str | None:
    """Returns a body as text; None if it is too long for a form, or a form would change it."""
    limit = 4 * BODY_CHARACTERS_MAX
    content, error = inflated_or_stored(letter.stored_body, letter.sys_flag, limit)
    text = None if error else text_of(content)
    if text is None or len(text) > BODY_CHARACTERS_MAX or "\r" in text:
        return None
    return text


def _is_line(name: str, value: str) -> bool:
    """True if a property can be a line of a form."""
    line = f"{name}={value}"
    return "=" not in name and line.isprintable() and (name, value) == (name.strip(), value.strip())


def _lines(letter: Message) -> dict[str, str]:
    """Returns the properties of a letter that a form shows."""
    return {
        name: value
        for name, value in letter.properties.items()
        if name not in NOT_COPIED_NAMES and _is_line(name, value)
    }


async def _copy_form(request: PageRequest) -> Mapping[str, object]:
    letter = await _named(request)
    lines = _lines(letter)
    kept = letter.properties.keys() - lines.keys() - NOT_COPIED_NAMES
    return {
        "group": request.places["group"],
        "offset": letter.queue_offset,
        "to": topic_of_copy(letter, request.places["group"]),
        "tags": letter.tags or "",
        "message_keys": " ".join(letter.keys),
        "lines": "\n".join(f"{name}={value}" for name, value in lines.items()),
        "kept": sorted(kept),
        "text": await asyncio.to_thread(_text, letter),
        "characters_max": BODY_CHARACTERS_MAX,
    }


async def _send_copy(request: PageRequest) -> Done:
    letter, form = await _named(request), request.form
    properties = properties_of(form.get("properties", "").split("\n"))
    check_waits(properties, request.now_ms)
    lines = _lines(letter)
    kept = {name: value for name, value in letter.properties.items() if name not in lines}
    body = form["body"].encode() if "body" in form else None
    edited = replace(
        letter,
        stored_body=letter.stored_body if body is None else body,
        sys_flag=letter.sys_flag if body is None else letter.sys_flag & ~COMPRESSED,
        tags=form.get("tags", "").strip() or None,
        keys=tuple(form.get("keys", "").split()),
        properties={**kept, **properties},
        # The copy is another message, and gets an id of its own.
        msg_id=letter.offset_msg_id,
    )
    topic = _topic(form) or topic_of_copy(letter, request.places["group"])
    content = body or b""
    check_message(topic, OutgoingMessage(content, edited.tags, edited.keys, edited.properties))
    await _sending(request).copy(topic, edited)
    group, offset = request.places["group"], letter.queue_offset
    return Done(group_path(group, f"/dead-letters/{offset}"), "resent-copy")


def _topic(given: Mapping[str, str]) -> str:
    """Returns the topic that a form names; empty selects that of each letter's first send."""
    return given.get("topic", "").strip()


# --- Repeated sends ---


def _chosen(texts: Sequence[str], given: Mapping[str, str]) -> Sequence[int]:
    """Returns the chosen offsets: named ones, or all from `begin` to before `end`.

    Raises ParameterIllegalError.
    """
    if not texts and given.get("begin") and given.get("end"):
        begin, end = (number_of(name, given[name]) for name in ("begin", "end"))
        return range(begin, max(begin, end))
    offsets = sorted({number_of("offset", text) for text in texts})
    if not 0 < len(offsets) <= LETTERS_A_REQUEST:
        accepted = f"1 to {LETTERS_A_REQUEST} dead letters"
        raise ParameterIllegalError("selection", counted(len(offsets), "dead letter"), accepted)
    return offsets


async def _resend_form(request: PageRequest) -> Mapping[str, object]:
    offsets = _chosen(request.lists.get("offset", ()), request.query)
    bounds = await _bounds(request)
    if isinstance(offsets, range):
        offsets = range(max(offsets.start, bounds.begin), min(offsets.stop, bounds.end))
    if not offsets or offsets[0] < bounds.begin or offsets[-1] >= bounds.end:
        shown = offsets[-1] if offsets else "none"
        accepted = f"{bounds.begin} to {bounds.end - 1}" if bounds.end > bounds.begin else "none"
        raise ParameterIllegalError("offset", shown, accepted)
    return {
        "group": request.places["group"],
        "count": len(offsets),
        "at_once": LETTERS_A_REQUEST,
        "offsets": [] if isinstance(offsets, range) else offsets,
        "begin": offsets[0],
        "end": offsets[-1] + 1,
        "to": _topic(request.query),
    }


async def _resend(request: PageRequest) -> Done:
    group, topic = request.places["group"], _topic(request.form)
    offsets = _chosen(request.lists.get("offset", ()), request.form)
    sending, bytes_left, done = _sending(request), BYTES_A_REQUEST, 0
    for offset in offsets[:LETTERS_A_REQUEST]:
        try:
            letter = await _letter_at(request, offset)
            await sending.copy(topic or topic_of_copy(letter, group), letter)
        except BrokerError as error:
            left = _fields(offsets[done:], topic)
            raise _failure(error, offset, done, len(offsets), left) from error
        done += 1
        bytes_left -= len(letter.stored_body)
        if bytes_left < 0:
            break
    letters = group_path(group, "/dead-letters")
    if done == len(offsets):
        return Done(letters, "resent")
    return Done(address(f"{letters}/resend", **_fields(offsets[done:], topic)), "resent-partly")


def _fields(offsets: Sequence[int], topic: str) -> dict[str, list[str]]:
    """Returns the fields of a form that sends these letters."""
    target = {"topic": [topic]} if topic else {}
    if isinstance(offsets, range):
        return {"begin": [str(offsets.start)], "end": [str(offsets.stop)], **target}
    return {"offset": [*map(str, offsets)], **target}


def _failure(
    error: BrokerError, offset: int, done: int, count: int, left: Mapping[str, list[str]]
) -> PartlyDoneError:
    """Returns the error that says which letters were sent before a failure."""
    code = error.number if isinstance(error, RefusedCallError) else error.code
    later = f" {counted(count - done - 1, 'later letter')} not sent." if count - done > 1 else ""
    return PartlyDoneError(
        code,
        f"{done} of {counted(count, 'dead letter')} sent. The letter at offset {offset} was not "
        f"sent: {error.remark}.{later} All stay dead letters; nothing is lost.",
        left,
    )


_LETTERS = "/groups/{group}/dead-letters"
PAGES = (
    Page(_LETTERS, "dead_letters.html", _letters),
    Page(f"{_LETTERS}/resend", "dead_letter_resend.html", _resend_form, _resend),
    Page(_LETTERS + "/{offset}", "dead_letter.html", _letter),
    Page(_LETTERS + "/{offset}/copy", "dead_letter_copy.html", _copy_form, _send_copy),
)

"""Creation, change, reset and deletion of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rocketpy_broker.contract_json import camel, json_of
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_broker.server.http.console.page import REFUSAL, Done, Page
from rocketpy_broker.server.http.console.renderer import part
from rocketpy_broker.server.http.console.request import (
    INT_MAX,
    NUMBER_MAX,
    PageRequest,
    address,
    number_of,
    time_of,
)
from rocketpy_proto.rocketpy.v1 import groups_pb2

# Changes of a reset, and topics of a group, that a page shows.
QUEUES_SHOWN, TOPICS_SHOWN = 100, 100
# Settings of a form with the meaning of each.
SWITCHES: Mapping[str, str] = {
    "consume_enable": "Members may consume",
    "consume_broadcast_enable": "Members may consume by broadcasting",
    "consume_message_orderly": "SDKs consume in order",
    "notify_consumer_ids_changed_enable": "Members are notified of members that join or leave",
    "consume_from_min_enable": "Stored for RocketMQ's tools, without effect here",
}
NUMBERS: Mapping[str, tuple[str, int]] = {
    "retry_max_times": ("Retries before a message is a dead letter", INT_MAX),
    "retry_queue_nums": ("Queues of the retry topic; 0 drops messages that fail", INT_MAX),
    "consume_timeout_minute": ("Minutes for the consumption of a message", INT_MAX),
    "broker_id": ("Broker to pull from; 0 is the master", NUMBER_MAX),
    "which_broker_when_consume_slowly": ("The same for old messages", NUMBER_MAX),
    "group_sys_flag": ("RocketMQ's flags of the group", INT_MAX),
}
# The values in the form of a new group.
_NEW = groups_pb2.GroupConfig(
    consume_enable=True,
    consume_from_min_enable=True,
    consume_broadcast_enable=True,
    notify_consumer_ids_changed_enable=True,
    retry_queue_nums=1,
    retry_max_times=16,
    which_broker_when_consume_slowly=1,
    consume_timeout_minute=15,
)


def group_path(group: str, below: str = "") -> str:
    """Returns the path of a group's page, or of a page below it."""
    return f"/groups/{part(group)}{below}"


async def details_of(request: PageRequest) -> groups_pb2.GetGroupResponse:
    """Returns the group of a request. Raises RefusedCallError for a missing one."""
    asked = groups_pb2.GetGroupRequest(consumer_group=request.places["group"])
    found: groups_pb2.GetGroupResponse = await request.call("Groups/GetGroup", asked)
    return found


# --- Settings ---


def _fields(config: groups_pb2.GroupConfig) -> Mapping[str, object]:
    return {
        "switches": [
            (name, camel(name), text, getattr(config, name)) for name, text in SWITCHES.items()
        ],
        "numbers": [
            (name, camel(name), text, most, getattr(config, name))
            for name, (text, most) in NUMBERS.items()
        ],
    }


async def _new(_request: PageRequest) -> Mapping[str, object]:
    return {"group": None, **_fields(_NEW)}


async def _edit(request: PageRequest) -> Mapping[str, object]:
    details = await details_of(request)
    config = details.config if details.HasField("config") else _NEW
    return {"group": request.places["group"], **_fields(config)}


async def _create(request: PageRequest) -> Done:
    group = request.form.get("group", "").strip()
    await _update(request, group, create_only=True)
    return Done(group_path(group), "group-created")


async def _change(request: PageRequest) -> Done:
    await details_of(request)
    group = request.places["group"]
    await _update(request, group, create_only=False)
    return Done(group_path(group), "group-changed")


async def _update(request: PageRequest, group: str, *, create_only: bool) -> None:
    settings: dict[str, Any] = {name: request.form.get(name) == "on" for name in SWITCHES}
    for name, (_, most) in NUMBERS.items():
        settings[name] = number_of(camel(name), request.form.get(name, "").strip(), most)
    config = groups_pb2.GroupConfig(consumer_group=group, **settings)
    asked = groups_pb2.UpdateGroupRequest(config=config, create_only=create_only)
    await request.call("Groups/UpdateGroup", asked)


# --- Deletion ---


async def _delete_form(request: PageRequest) -> Mapping[str, object]:
    details = await details_of(request)
    topics = await _topics(request)
    return {
        "group": request.places["group"],
        "details": json_of(details),
        "topics": json_of(topics),
    }


async def _topics(request: PageRequest) -> groups_pb2.ListGroupTopicsResponse:
    asked = groups_pb2.ListGroupTopicsRequest(
        consumer_group=request.places["group"], count_max=TOPICS_SHOWN
    )
    found: groups_pb2.ListGroupTopicsResponse = await request.call("Groups/ListGroupTopics", asked)
    return found


async def _delete(request: PageRequest) -> Done:
    asked = groups_pb2.DeleteGroupRequest(
        consumer_group=request.places["group"],
        keep_topics=request.form.get("keep") == "on",
        force=request.form.get("force") == "on",
    )
    await request.call("Groups/DeleteGroup", asked)
    return Done("/groups", "group-deleted")


# --- Resets ---


def _reset_request(group: str, given: Mapping[str, str]) -> groups_pb2.ResetOffsetsRequest:
    """Returns the reset of a form's fields. Raises ParameterIllegalError."""
    asked = groups_pb2.ResetOffsetsRequest(
        consumer_group=group, topic=given.get("topic", "").strip()
    )
    queue, to = given.get("queue", "").strip(), given.get("to", "")
    if queue:
        asked.queue_id = number_of("queue", queue, INT_MAX)
    if to in ("earliest", "latest"):
        setattr(asked, to, True)
    elif to == "time":
        asked.timestamp_ms = ms_of_time(time_of("time", given.get("time", "").strip()))
    elif to == "offset":
        asked.offset = number_of("offset", given.get("offset", "").strip())
    else:
        raise ParameterIllegalError("to", to, "earliest, latest, time or offset")
    return asked


async def _reset_form(request: PageRequest) -> Mapping[str, object]:
    details = await details_of(request)
    topics = await _topics(request)
    given = {
        name: request.query.get(name, "") for name in ("topic", "queue", "to", "time", "offset")
    }
    preview = refusal = None
    try:
        preview = await _preview(request, given) if given["to"] else None
    except BrokerError as error:
        refusal = error
    return {
        "group": request.places["group"],
        "member_count": details.member_count,
        "names": [each.topic for each in topics.topics],
        "given": given,
        "preview": preview,
        REFUSAL: refusal,
    }


async def _preview(request: PageRequest, given: Mapping[str, str]) -> Mapping[str, object]:
    """Returns the effect of a reset; a group without progress in a queue would begin at its start.

    Another dry run returns the first message of each queue.
    """
    asked = _reset_request(request.places["group"], given)
    asked.dry_run = True
    changes = await request.call("Groups/ResetOffsets", asked)
    asked.earliest = True
    starts = await request.call("Groups/ResetOffsets", asked)

    def shown() -> Mapping[str, object]:
        firsts = {each.queue_id: each.new_offset for each in starts.offsets}
        return shown_changes(changes.offsets, firsts)

    # Many queues take many milliseconds.
    return await asyncio.to_thread(shown)


def shown_changes(
    changes: Sequence[groups_pb2.ResetOffset], firsts: Mapping[int, int]
) -> dict[str, object]:
    """Returns the effect of a reset, queue by queue, and in all; `firsts` are first offsets."""
    again = skipped = changed = 0
    rows: list[dict[str, object]] = []
    for each in changes:
        place = max(each.old_offset, firsts.get(each.queue_id, 0))
        distance = each.new_offset - place
        again += max(-distance, 0)
        skipped += max(distance, 0)
        if each.old_offset == each.new_offset:
            continue
        changed += 1
        if len(rows) < QUEUES_SHOWN:
            old = None if each.old_offset < 0 else each.old_offset
            effect = {"again": max(-distance, 0), "skipped": max(distance, 0)}
            rows.append({"queue": each.queue_id, "old": old, "new": each.new_offset, **effect})
    return {
        "rows": rows,
        "again": again,
        "skipped": skipped,
        "changed": changed,
        "unchanged": len(changes) - changed,
    }


async def _reset(request: PageRequest) -> Done:
    group = request.places["group"]
    asked = _reset_request(group, request.form)
    asked.force = request.form.get("force") == "on"
    await request.call("Groups/ResetOffsets", asked)
    return Done(address(group_path(group), topic=asked.topic), "reset")


PAGES = (
    # Not /groups/new: a group may have the name `new`.
    Page("/new/group", "group_edit.html", _new, _create),
    Page("/groups/{group}/edit", "group_edit.html", _edit, _change),
    Page("/groups/{group}/delete", "group_delete.html", _delete_form, _delete),
    Page("/groups/{group}/reset", "group_reset.html", _reset_form, _reset),
)

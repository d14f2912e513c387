"""Creation, change, emptying and deletion of topics."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.server.http.console.page import Done, Page
from rocketpy_broker.server.http.console.pages.topics import (
    is_brokers_own,
    message_counts,
    topic_config,
)
from rocketpy_broker.server.http.console.renderer import counted, part
from rocketpy_broker.server.http.console.request import INT_MAX, PageRequest, number_of
from rocketpy_broker.services.topics.attributes import RESERVE_TIME
from rocketpy_proto.model import DEAD_LETTER_PREFIX, MESSAGE_TYPE, MESSAGE_TYPES, RETRY_PREFIX
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Groups that a page names before the user confirms.
GROUPS_COUNT = 20
QUEUES_DEFAULT = 8
# The retention time of a topic that uses the broker's.
NO_RETENTION = "-1"
PERMISSIONS = (6, 4, 2, 0)
# RocketMQ's bit INHERIT, which the form does not show.
_INHERITED = 1


# --- Forms ---


async def _new(_request: PageRequest) -> Mapping[str, object]:
    return {
        "message_types": MESSAGE_TYPES[1:],
        "permissions": PERMISSIONS,
        "queues": QUEUES_DEFAULT,
    }


async def _edit(request: PageRequest) -> Mapping[str, object]:
    config = await topic_config(request)
    return {
        "topic": json_of(config),
        "message_types": MESSAGE_TYPES[1:],
        "permissions": PERMISSIONS,
        "permission": config.perm & ~_INHERITED,
    }


async def _lost(request: PageRequest) -> Mapping[str, object]:
    """Returns the facts that a page names before the user confirms."""
    config = await topic_config(request)
    topic = config.topic
    asked = admin_pb2.ListTopicGroupsRequest(topic=topic, count_max=GROUPS_COUNT)
    groups = await request.json("Admin/ListTopicGroups", asked)
    count = (await message_counts(request, [topic])).get(topic)
    messages = "its messages" if count is None else counted(count, "message")
    return {
        "topic": json_of(config),
        "groups": groups,
        "messages": messages,
        "is_own": await is_brokers_own(request, topic),
        "warning": _warning(topic),
    }


def _warning(topic: str) -> str:
    """Returns what else is lost with the messages of a topic; empty for most topics."""
    if topic.startswith(RETRY_PREFIX):
        group = topic.removeprefix(RETRY_PREFIX)
        return (
            f"Its messages are retries: group {group} failed to consume them and would get them "
            "again. Without them they are lost for the group, and do not become dead letters."
        )
    if topic.startswith(DEAD_LETTER_PREFIX):
        group = topic.removeprefix(DEAD_LETTER_PREFIX)
        return (
            f"Its messages are the dead letters of group {group}. Without them nothing shows which "
            "messages the group has given up, and they cannot be sent again."
        )
    return ""


# --- Actions ---


async def _create(request: PageRequest) -> Done:
    form = request.form
    topic = form.get("topic", "").strip()
    queues = number_of("queues", form.get("queues", ""), INT_MAX)
    config = admin_pb2.TopicConfig(
        topic=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=number_of("permission", form.get("permission", ""), INT_MAX),
        attributes=_changes({}, {MESSAGE_TYPE: _message_type(form, "")}),
    )
    asked = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
    await request.call("Admin/UpdateTopic", asked)
    return Done(f"/topics/{part(topic)}", "topic-created")


async def _change(request: PageRequest) -> Done:
    form, old = request.form, await topic_config(request)
    retention = form.get("reserve_time", "").strip()
    if retention not in {"", NO_RETENTION}:
        retention = str(number_of("retention", retention))
    wanted = {
        MESSAGE_TYPE: _message_type(form, old.attributes.get(MESSAGE_TYPE, "")),
        RESERVE_TIME: retention,
    }
    perm = number_of("permission", form.get("permission", ""), INT_MAX)
    config = admin_pb2.TopicConfig(
        topic=old.topic,
        read_queue_nums=number_of("read queues", form.get("read_queues", ""), INT_MAX),
        write_queue_nums=number_of("write queues", form.get("write_queues", ""), INT_MAX),
        perm=perm | old.perm & _INHERITED,
        order=form.get("order") == "on",
        attributes=_changes(old.attributes, wanted),
    )
    await request.call("Admin/UpdateTopic", admin_pb2.UpdateTopicRequest(config=config))
    return Done(f"/topics/{part(old.topic)}", "topic-changed")


def _message_type(form: Mapping[str, str], old: str) -> str:
    """Returns the message type of a form. Raises ParameterIllegalError."""
    found = form.get("message_type", "")
    if found not in {"", old, *MESSAGE_TYPES}:
        raise ParameterIllegalError("message type", found, ", ".join(MESSAGE_TYPES))
    return found


def _changes(old: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Returns the changes of attributes; an empty value removes one."""
    changes: dict[str, str] = {}
    for name, value in wanted.items():
        if value and value != old.get(name):
            changes[f"+{name}"] = value
        elif not value and name in old:
            changes[f"-{name}"] = ""
    return changes


async def _empty(request: PageRequest) -> Done:
    topic = request.places["topic"]
    await request.call("Admin/EmptyTopic", admin_pb2.EmptyTopicRequest(topic=topic))
    return Done(f"/topics/{part(topic)}", "topic-emptied")


async def _delete(request: PageRequest) -> Done:
    topic = request.places["topic"]
    await request.call("Admin/DeleteTopic", admin_pb2.DeleteTopicRequest(topic=topic))
    return Done("/topics", "topic-deleted")


PAGES = (
    # Not /topics/new: a topic may have the name `new`.
    Page("/new/topic", "topic_new.html", _new, _create),
    Page("/topics/{topic}/edit", "topic_edit.html", _edit, _change),
    Page("/topics/{topic}/empty", "topic_empty.html", _lost, _empty),
    Page("/topics/{topic}/delete", "topic_delete.html", _lost, _delete),
)

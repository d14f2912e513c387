"""The form that sends a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.messages.outgoing_message import (
    OutgoingMessage,
    WaitArguments,
    fault_of_wait,
)
from rocketpy_broker.server.http.api.sends import ApiSender, MessageJsonError
from rocketpy_broker.server.http.console.page import Done, Page
from rocketpy_broker.server.http.console.pages.topics import topic_config
from rocketpy_broker.server.http.console.renderer import duration_text, part
from rocketpy_broker.server.http.console.request import (
    INT_MAX,
    PageRequest,
    address,
    number_of,
    time_of,
)
from rocketpy_proto.model import MESSAGE_TYPE, TRANSACTION
from rocketpy_proto.record import java_hash
from rocketpy_proto.record.properties import SHARDING_KEY
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Characters of a body. One may take nine bytes of a form; the rest is for the other fields.
BODY_CHARACTERS_MAX = 16_000
PRODUCERS = "rocketpy-console"
COMMIT, LEAVE_OPEN = "commit", "leave-open"


async def _form(request: PageRequest) -> Mapping[str, object]:
    config = await topic_config(request)
    info = await request.call("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest())
    return {
        "topic": config.topic,
        "message_type": config.attributes.get(MESSAGE_TYPE, ""),
        "write_queues": config.write_queue_nums,
        "levels": [duration_text(delay_ms) for delay_ms in info.delay_levels_ms],
        "characters_max": BODY_CHARACTERS_MAX,
        "producers": PRODUCERS,
        "is_transaction": config.attributes.get(MESSAGE_TYPE) == TRANSACTION,
    }


async def _send(request: PageRequest) -> Done:
    form, config = request.form, await topic_config(request)
    topic, message = config.topic, _message(form)
    check_waits(message.properties, request.now_ms)
    group = form.get("message_group", "").strip()
    if group:
        queue_id = abs(java_hash(group)) % max(config.write_queue_nums, 1)
        properties = {**message.properties, SHARDING_KEY: group}
        message = replace(message, properties=properties, queue_id=queue_id)
    sending = ApiSender(request.calls, request.caller, request.now_ms)
    transaction = form.get("transaction", "")
    if transaction not in {"", COMMIT, LEAVE_OPEN}:
        raise ParameterIllegalError("transaction", transaction, f"{COMMIT}, {LEAVE_OPEN} or none")
    producers = PRODUCERS if transaction else ""
    sent = await sending.send(topic, message, producers, is_open=transaction == LEAVE_OPEN)
    if not request.may("Broker/Pull", topic=topic):
        is_open = request.may("Admin/ListTopicQueues", topic=topic)
        return Done(f"/topics/{part(topic)}" if is_open else "/topics", "sent")
    if sent.queue_offset is None:
        return Done(address(f"/topics/{part(topic)}/messages", key=sent.msg_id), "sent")
    queue = f"/topics/{part(topic)}/queues/{sent.queue_id}"
    return Done(f"{queue}/messages/{sent.queue_offset}", "sent")


def _message(form: Mapping[str, str]) -> OutgoingMessage:
    """Returns the message of a form. Raises ParameterIllegalError."""
    queue, time = form.get("queue", "").strip(), form.get("deliver_at", "").strip()
    level = form.get("delay_level", "").strip()
    return OutgoingMessage(
        form.get("body", "").encode(),
        form.get("tags", "").strip() or None,
        tuple(form.get("keys", "").split()),
        properties_of(form.get("properties", "").splitlines()),
        number_of("queue", queue, INT_MAX) if queue else None,
        number_of("delay level", level, INT_MAX) if level else 0,
        time_of("delivery time", time) if time else None,
    )


def properties_of(lines: Iterable[str]) -> dict[str, str]:
    """Returns the properties of lines such as `shop=3`. Raises ParameterIllegalError."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines)):
        name, sign, value = line.partition("=")
        if not (sign and name.strip()):
            raise ParameterIllegalError("property", line, "name=value, one in a line")
        found[name.strip()] = value.strip()
    return found


def check_waits(properties: Mapping[str, str], now_ms: int) -> None:
    """Raises MessageJsonError for a property that would make the message wait."""
    names = WaitArguments("a delay level", "a delivery time", "a transaction")
    fault = fault_of_wait(properties, now_ms, names)
    if fault is not None:
        raise MessageJsonError(f"illegal message: {fault}")


PAGES = (Page("/topics/{topic}/send", "send.html", _form, _send),)

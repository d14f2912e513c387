"""A browser's request, as the functions of pages and actions get it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.time_format import parsed_time
from rocketpy_broker.server.http.api.calls import HttpCaller, InnerCalls, RefusedCallError
from rocketpy_broker.server.http.api.routes import method_of
from rocketpy_broker.server.security.rocketpy_v1_access import Rights
from rocketpy_proto.model.codes import ResponseCode

# All numbers of 18 digits fit into 63 bits.
_NUMBER = re.compile(r"[0-9]{1,18}")
_ZONE = re.compile(r"([zZ]|[+-][0-9]{2}:?[0-9]{2})$")
NUMBER_MAX, INT_MAX = 10**18 - 1, (1 << 31) - 1
_WITHOUT_ANSWER = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
    }
)


@dataclass(frozen=True)
class PageRequest:
    """A request: the places of its path, its query, and the fields of its form.

    `lists` has all values of each field of the form, or of the query without a form.
    """

    calls: InnerCalls
    caller: HttpCaller
    rights: Rights
    now_ms: int
    places: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, list[str]] = field(default_factory=dict)

    def may(self, rpc: str, **fields: object) -> bool:
        """True if the user may call a method with a request of these fields.

        Without the name of a topic or group, the permission for one of them is enough.
        """
        request = GetMessageClass(method_of(rpc).input_type)(**fields)
        return self.rights.allows(rpc, request)

    def may_open_topic(self, topic: str) -> bool:
        """True if the user may open a topic's page."""
        return self.may("Admin/ListTopicQueues", topic=topic)

    def may_open_group(self, group: str) -> bool:
        """True if the user may open a group's page."""
        return self.may("Groups/GetGroup", consumer_group=group)

    async def call(self, rpc: str, request: Message) -> Any:
        """Returns the answer of a method of rocketpy.v1. Raises RefusedCallError."""
        return await self.calls.call(self.caller, rpc, request)

    async def json(self, rpc: str, request: Message) -> Any:
        """Returns the same answer as JSON, in the shape of the JSON API."""
        return json_of(await self.call(rpc, request))

    async def found(self, rpc: str, request: Message) -> Any | None:
        """Returns the answer; None if there is nothing, or the user may not read it.

        Raises RefusedCallError.
        """
        try:
            return await self.call(rpc, request)
        except RefusedCallError as error:
            if error.number in _WITHOUT_ANSWER:
                return None
            raise

    def number(self, name: str, default: int, number_max: int = NUMBER_MAX) -> int:
        """Returns a whole number of the query, 0 or more. Raises ParameterIllegalError."""
        text = self.query.get(name, "").strip()
        return number_of(name, text, number_max) if text else default


def number_of(name: str, text: str, number_max: int = NUMBER_MAX) -> int:
    """Returns a whole number, 0 to `number_max`. Raises ParameterIllegalError."""
    if not _NUMBER.fullmatch(text) or int(text) > number_max:
        raise ParameterIllegalError(name, text, f"a whole number, 0 to {number_max}")
    return int(text)


def time_of(name: str, text: str) -> datetime:
    """Returns a time; a text without a zone is in UTC. Raises ParameterIllegalError."""
    try:
        zoned = text if _ZONE.search(text) else f"{text}Z"
        return parsed_time(zoned)
    except ValueError as error:
        raise ParameterIllegalError(name, text, "a time such as 2026-05-01T08:00:00") from error


def address(path: str, **query: object) -> str:
    """Returns a path with its query; empty values are left out, and a list repeats its name."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path

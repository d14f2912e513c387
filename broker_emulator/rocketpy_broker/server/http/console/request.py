"""A browser's request, as the functions of pages and actions get it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from rocketpy_broker.contract_json import json_of
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.server.http.api.calls import Caller, InnerCalls

# As many digits as all values of 63 bits have.
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class PageRequest:
    """A request: the places of its path, its query, and the fields of its form.

    A field that is given several times has its values in `lists`.
    """

    calls: InnerCalls
    caller: Caller
    now_ms: int
    places: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, list[str]] = field(default_factory=dict)

    async def call(self, rpc: str, request: Message) -> Any:
        """Returns the answer of a method of rocketpy.v1. Raises RefusedCallError."""
        return await self.calls.call(self.caller, rpc, request)

    async def json(self, rpc: str, request: Message) -> Any:
        """Returns the same answer as JSON, in the shape of the JSON API."""
        return json_of(await self.call(rpc, request))

    def number(self, name: str, default: int) -> int:
        """Returns a whole number of the query, 0 or more. Raises ParameterIllegalError."""
        text = self.query.get(name, "").strip()
        if not text:
            return default
        if not _NUMBER.fullmatch(text):
            raise ParameterIllegalError(name, text, "a whole number, 0 or more")
        return int(text)

"""A client of the JSON API."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from tests.support.broker.running_broker import RunningBroker

JSON_TYPE = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """An answer: its status, its JSON and its headers."""

    status: int
    json: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> tuple[int, int]:
        """The status and the code of an error, which has a message."""
        assert self.json["message"]
        return self.status, self.json["code"]


async def ask(
    running: RunningBroker,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] = JSON_TYPE,
    user: tuple[str, str] | None = None,
) -> Reply:
    """Sends a request to a path below /api/v1, as it is written."""
    url = URL(f"http://127.0.0.1:{running.ready.http_port}/api/v1{path}", encoded=True)
    if user is not None:
        basic = base64.b64encode(":".join(user).encode()).decode()
        headers = {**headers, "Authorization": f"Basic {basic}"}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=data, headers=headers) as response,
    ):
        text = await response.text()
        return Reply(response.status, json.loads(text), response.headers)


async def get(running: RunningBroker, path: str) -> Any:
    """Returns the JSON of an answer that is no error."""
    reply = await ask(running, "GET", path)
    assert reply.status == 200, reply
    return reply.json

"""The JSON API over HTTP, from a request to its answer.

An error is `{"code": …, "message": …}`, with the response code and the remark of the contract.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

from aiohttp import web
from google.protobuf.message import Message

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.server.http.api.answers import answer_json, has_messages
from rocketpy_broker.server.http.api.calls import HttpCaller, InnerCalls, RefusedCallError
from rocketpy_broker.server.http.api.cross_site import (
    JSON_TYPE,
    ContentTypeError,
    HostRule,
    check_content_type,
    check_site,
)
from rocketpy_broker.server.http.api.requests import filled
from rocketpy_broker.server.http.api.routes import PREFIX, ROUTES, Route, Sends
from rocketpy_broker.server.http.api.sends import ApiSender, target_of
from rocketpy_broker.server.http.bodies import body_of, skip_body
from rocketpy_broker.server.http.replies import write_pieces
from rocketpy_broker.server.security.attempts import host_of
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1.broker_pb2 import PullRequest

# Bytes of a request's body.
BODY_BYTES_MAX = 16 << 10
# Answers of several MiB that are made or read at a time, in all and of one address; more wait.
LARGE_ANSWERS_MAX, LARGE_ANSWERS_OF_HOST = 8, 4
STATUS_OF: dict[int, HTTPStatus] = {
    ResponseCode.INVALID_PARAMETER: HTTPStatus.BAD_REQUEST,
    ResponseCode.MESSAGE_ILLEGAL: HTTPStatus.BAD_REQUEST,
    ResponseCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    ResponseCode.NO_PERMISSION: HTTPStatus.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: HTTPStatus.NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: HTTPStatus.NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: HTTPStatus.NOT_FOUND,
    ResponseCode.TOPIC_EXIST_ALREADY: HTTPStatus.CONFLICT,
    ResponseCode.ILLEGAL_OPERATION: HTTPStatus.CONFLICT,
    ResponseCode.SYSTEM_BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    ResponseCode.SERVICE_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ResponseCode.FLUSH_DISK_TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
}
# Codes of aiohttp's own refusals; the code of the rest is INVALID_PARAMETER.
_CODE_OF = {
    HTTPStatus.NOT_FOUND: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    HTTPStatus.METHOD_NOT_ALLOWED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: ResponseCode.SYSTEM_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
HEADERS = {
    "Content-Type": JSON_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
CHALLENGE = {"WWW-Authenticate": 'Basic realm="rocketpy"'}
OPENAPI = "/openapi.json"


# Returns the answer; what it enters into the stack ends when the answer is written.
Work = Callable[[web.Request, AsyncExitStack], Awaitable[bytes]]


class JsonApi:
    """The routes below PREFIX."""

    def __init__(self, calls: InnerCalls, clock: Clock, hosts: HostRule) -> None:
        """Takes in `clock` the clock of message times."""
        self._calls = calls
        self._clock = clock
        self.hosts = hosts
        self._answers = InFlightLimiter(LARGE_ANSWERS_MAX, LARGE_ANSWERS_OF_HOST)

    def routes(self, on_reply: Callable[[web.Request], None]) -> list[web.RouteDef]:
        """Returns all routes. `on_reply` is called when an answer is about to be written."""
        found = [
            web.route(each.method, PREFIX + each.path, self._handler(self._work_of(each), on_reply))
            for each in ROUTES
        ]
        return [*found, web.route("GET", PREFIX + OPENAPI, self._handler(_openapi, on_reply))]

    def _handler(
        self, work: Work, on_reply: Callable[[web.Request], None]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            async with AsyncExitStack() as stack:
                try:
                    check_site(request.headers, self.hosts)
                    answer = await work(request, stack)
                except BrokerError as error:
                    await skip_body(request)
                    return error_response(error)
                on_reply(request)
                return await write_pieces(request, HEADERS, [answer])

        return handle

    def _work_of(self, route: Route) -> Work:
        """Returns the work of a route, which raises BrokerError."""

        async def work(request: web.Request, stack: AsyncExitStack) -> bytes:
            if route.is_action:
                check_content_type(request.headers)
            caller = caller_of(request)
            # First of all: a wrong secret key is delayed, and must take no place of other clients.
            await self._calls.authenticate(caller, route.rpc)
            body = await body_of(request, BODY_BYTES_MAX)
            if has_messages(route.answer) or route.is_unpaged:
                # The place is held until the client has read the answer.
                await stack.enter_async_context(self._answers.acquire(host_of(caller.peer), 1))
            sending = ApiSender(self._calls, caller, self._clock.now_ms())
            if route.sends is Sends.BODY:
                return await sending.message(request.match_info["topic"], body)
            target = None
            if route.sends is Sends.DEAD_LETTER:
                target, body = target_of(body), b""
            asked = filled(route, request.match_info, request.query.items(), body)
            if isinstance(asked, PullRequest) and route.sends is Sends.DEAD_LETTER:
                group = request.match_info["consumer_group"]
                return await sending.dead_letter(group, asked, target)
            return await self._answer(route, caller, asked)

        return work

    async def _answer(self, route: Route, caller: HttpCaller, asked: Message) -> bytes:
        answer = await self._calls.call(caller, route.rpc, asked)
        return await answer_json(answer, route.entry)


async def _openapi(_request: web.Request, _stack: AsyncExitStack) -> bytes:
    """Returns the description; its module is loaded at its first request."""
    from rocketpy_broker.server.http.api.openapi import openapi_text

    return openapi_text()


def is_api(path: str) -> bool:
    """True if errors of a path are answered in JSON."""
    return path == PREFIX or path.startswith(PREFIX + "/")


@web.middleware
async def json_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Converts errors of HTTP at a path of the API into JSON."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if is_api(request.path):
            return http_error_response(error)
        raise


def error_response(error: BrokerError) -> web.Response:
    """Returns the answer that reports an error of the broker."""
    status = status_of(error)
    headers = CHALLENGE if status is HTTPStatus.UNAUTHORIZED else {}
    return _error(status, _code_of(error), error.remark, headers)


def status_of(error: BrokerError) -> HTTPStatus:
    """Returns the status of the answer that reports an error of the broker."""
    if isinstance(error, ContentTypeError):
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    return STATUS_OF.get(_code_of(error), HTTPStatus.INTERNAL_SERVER_ERROR)


def _code_of(error: BrokerError) -> int:
    return error.number if isinstance(error, RefusedCallError) else error.code


def http_error_response(error: web.HTTPException) -> web.Response:
    """Returns the answer that reports an error of HTTP, such as an unknown path."""
    status = HTTPStatus(error.status)
    code = _CODE_OF.get(status, ResponseCode.INVALID_PARAMETER)
    allowed = error.headers.get("Allow")
    return _error(
        status,
        code,
        f"{status.phrase}; GET {PREFIX}{OPENAPI} describes all requests",
        {} if allowed is None else {"Allow": allowed},
    )


def _error(status: HTTPStatus, code: int, message: str, headers: dict[str, str]) -> web.Response:
    text = json.dumps({"code": int(code), "message": message})
    return web.Response(status=status, body=text.encode(), headers={**HEADERS, **headers})


def caller_of(request: web.Request) -> HttpCaller:
    """Returns the client of a request."""
    name: Any = request.transport and request.transport.get_extra_info("peername")
    host, port = name[:2] if name else (request.remote or "", 0)
    return HttpCaller(f"http:{host}:{port}", request.headers.get("Authorization", ""))

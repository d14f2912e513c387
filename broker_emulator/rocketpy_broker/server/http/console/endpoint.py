"""The console over HTTP: pages, actions and the files of its browsers.

A page is made of the answers of the contract's methods, so it has a client's limits and
permissions. An action is a form that is posted, with the token of `tokens`; then the browser gets
the page of its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from urllib.parse import parse_qsl

from aiohttp import web

from rocketpy_broker.config import ConsoleMode
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.server.http.api.calls import InnerCalls
from rocketpy_broker.server.http.api.cross_site import HostRule, check_site
from rocketpy_broker.server.http.api.endpoint import (
    BODY_BYTES_MAX,
    CHALLENGE,
    body_of,
    caller_of,
    status_of,
)
from rocketpy_broker.server.http.console.assets import PREFIX, assets
from rocketpy_broker.server.http.console.page import NOTICES, Action, Done, Page
from rocketpy_broker.server.http.console.pages.table import ACTIONS, PAGES
from rocketpy_broker.server.http.console.renderer import rendered
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_broker.server.http.console.tokens import COOKIE, FIELD, Tokens
from rocketpy_broker.server.http.replies import write_pieces
from rocketpy_broker.server.security.attempts import host_of
from rocketpy_proto.model.codes import ResponseCode

# Pages that are made and read at a time, in all and of one address; more wait.
PAGES_AT_A_TIME, PAGES_OF_HOST = 16, 8
FIELDS_MAX = 1_100
# A method that any user may call. It checks the user before the rest of a request is read.
_ENTRY = "Admin/GetBrokerInfo"
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Without its own address a browser sends the origin of a form as `null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Reply = Awaitable[web.StreamResponse]


class FormTooLongError(BrokerError):
    """A form beyond the limit of a request; nothing was done."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self) -> None:
        super().__init__(
            f"the form is too long, limit {BODY_BYTES_MAX} bytes. Send long messages with "
            "`rocketpy message send`"
        )


class Console:
    """The console of one broker."""

    def __init__(
        self,
        calls: InnerCalls,
        clock: Clock,
        hosts: HostRule,
        broker_name: str,
        mode: ConsoleMode = ConsoleMode.ON,
    ) -> None:
        """Takes the clock of messages."""
        self._calls = calls
        self._clock = clock
        self._hosts = hosts
        self._tokens = Tokens()
        self._frame = {"broker_name": broker_name, "can_act": mode is ConsoleMode.ON}
        self._places = InFlightLimiter(PAGES_AT_A_TIME, PAGES_OF_HOST)

    def routes(self, on_reply: Callable[[web.Request], None]) -> list[web.RouteDef]:
        """Returns all routes. `on_reply` is called when a page is about to be written."""
        can_act = self._frame["can_act"]
        pages = [each for each in PAGES if can_act or not each.is_form]
        actions = ACTIONS if can_act else ()
        return [
            *(web.get(each.path, self._handler(self._page(each), on_reply)) for each in pages),
            *(web.post(each.path, self._handler(self._action(each), on_reply)) for each in actions),
            web.get(PREFIX + "/{name}", _asset),
        ]

    def _handler(
        self,
        work: Callable[[web.Request], Awaitable[web.Response]],
        on_reply: Callable[[web.Request], None],
    ) -> Callable[[web.Request], Reply]:
        async def handle(request: web.Request) -> web.StreamResponse:
            caller = caller_of(request)
            async with AsyncExitStack() as stack:
                try:
                    check_site(request.headers, self._hosts)
                    # First of all: a guess of a secret key waits, and must hold no place.
                    await self._calls.authenticate(caller, _ENTRY)
                    # Nor may a slow body; aiohttp keeps it.
                    await body_of(request)
                    # Until the client has read the page.
                    await stack.enter_async_context(self._places.room(host_of(caller.peer), 1))
                    answer = await work(request)
                except BrokerError as error:
                    answer = await self._error(error, status_of(error))
                except web.HTTPRequestEntityTooLarge as error:
                    answer = await self._error(FormTooLongError(), HTTPStatus(error.status))
                on_reply(request)
                body = answer.body if isinstance(answer.body, bytes) else b""
                return await write_pieces(request, answer.headers, [body], answer.status)

        return handle

    def _page(self, page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def work(request: web.Request) -> web.Response:
            values = await page.values(self._asked(request, {}))
            cookie = request.cookies.get(COOKIE, "")
            value = self._tokens.value(cookie)
            notice = NOTICES.get(request.query.get("notice", ""), "")
            frame = {"token": self._tokens.token(value), "notice": notice, "path": request.path}
            body = await rendered(page.template, {**self._frame, **frame, **values})
            response = web.Response(body=body, headers=HEADERS)
            if value != cookie:
                response.set_cookie(
                    COOKIE, value, httponly=True, samesite="Strict", secure=request.secure
                )
                for each in response.cookies.values():
                    response.headers.add("Set-Cookie", each.OutputString())
            return response

        return work

    def _action(self, action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def work(request: web.Request) -> web.Response:
            form = _form(await body_of(request))
            self._tokens.check(request.cookies.get(COOKIE, ""), (form.get(FIELD) or [""])[0])
            done: Done = await action.act(self._asked(request, form))
            sign = "&" if "?" in done.path else "?"
            place = f"{done.path}{sign}notice={done.notice}"
            return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": place})

        return work

    def _asked(self, request: web.Request, form: Mapping[str, list[str]]) -> PageRequest:
        return PageRequest(
            self._calls,
            caller_of(request),
            self._clock.now_ms(),
            request.match_info,
            request.query,
            {name: values[0] for name, values in form.items()},
            form,
        )

    async def _error(self, error: BrokerError, status: HTTPStatus) -> web.Response:
        """Returns the page that reports an error of the broker."""
        values = {"status": status, "message": error.remark, "token": "", "notice": "", "path": ""}
        body = await rendered("error.html", {**self._frame, **values})
        headers = CHALLENGE if status is HTTPStatus.UNAUTHORIZED else {}
        return web.Response(status=status, body=body, headers={**HEADERS, **headers})


def _form(body: bytes) -> dict[str, list[str]]:
    """Returns the fields of a form. Raises ParameterIllegalError."""
    found: dict[str, list[str]] = {}
    try:
        # An empty field is a value: it removes what was there.
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise ParameterIllegalError("form", body[:100], "the fields of a page's form") from error
    for name, value in pairs:
        # Browsers end a form's lines with CR LF.
        found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


async def _asset(request: web.Request) -> web.Response:
    """Returns a file; a browser keeps it, since its address has its hash."""
    found = assets().get(request.match_info["name"])
    if found is None:
        raise web.HTTPNotFound
    headers = {
        "Content-Type": found.type,
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(body=found.content, headers=headers)

"""The console over HTTP: pages, actions, and the files for browsers.

A page is made from the answers of the contract's methods, so it has a client's limits and
permissions. An action is a posted form with the token of `tokens`. The browser then gets the page
of its result, or the form with its values and an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from rocketpy_broker.config import ConsoleMode
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.server.http.api.calls import InnerCalls
from rocketpy_broker.server.http.api.cross_site import HostRule, check_site
from rocketpy_broker.server.http.api.endpoint import (
    CHALLENGE,
    caller_of,
    status_of,
)
from rocketpy_broker.server.http.bodies import body_of, skip_body
from rocketpy_broker.server.http.console.assets import PREFIX, assets
from rocketpy_broker.server.http.console.page import (
    NOTICES,
    REFUSAL,
    Done,
    Entered,
    Page,
    PartlyDoneError,
)
from rocketpy_broker.server.http.console.pages.table import PAGES
from rocketpy_broker.server.http.console.renderer import rendered
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_broker.server.http.console.tokens import COOKIE, FIELD, Tokens
from rocketpy_broker.server.http.replies import write_pieces
from rocketpy_broker.server.security.attempts import host_of
from rocketpy_broker.server.security.permissions import Permissions, Principal, Role
from rocketpy_broker.server.security.rocketpy_v1_access import Rights
from rocketpy_proto.model.codes import ResponseCode

# Pages that are made or read at a time, in all and of one address; more wait.
PAGES_AT_A_TIME, PAGES_OF_HOST = 16, 8
FIELDS_MAX = 1_100
# Bytes of a form as it is sent; longer ones than SMALL_FORM_BYTES are read on a thread.
FORM_BYTES_MAX, SMALL_FORM_BYTES = 256 << 10, 16 << 10
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With `no-referrer` a browser would send `null` as the origin of a form.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Reply = Awaitable[web.StreamResponse]
# Makes an answer from a request and its body. Raises BrokerError.
Work = Callable[[web.Request, PageRequest, bytes], Awaitable[web.Response]]
# The permissions of a request whose user is not known.
_NO_RIGHTS = Rights(Principal("", Role.USER, Permissions({}), Permissions({})))


class FormTooLongError(BrokerError):
    """A form beyond the limit of a request; nothing was done."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self) -> None:
        super().__init__(
            f"the form is too long, limit {FORM_BYTES_MAX >> 10} KiB as the browser sends it. Go "
            "back: the browser has kept what you entered. Send long messages with `rocketpy "
            "message send`"
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
        """Takes in `clock` the clock of message times."""
        self._calls = calls
        self._clock = clock
        self.hosts = hosts
        self._tokens = Tokens()
        self._is_read_only = mode is not ConsoleMode.ON
        self._frame = {"broker_name": broker_name, "is_read_only": self._is_read_only}
        self._places = InFlightLimiter(PAGES_AT_A_TIME, PAGES_OF_HOST)

    def routes(self, on_reply: Callable[[web.Request], None]) -> list[web.RouteDef]:
        """Returns all routes. `on_reply` is called when a page is about to be written."""
        pages = [each for each in PAGES if not self._is_read_only or each.act is None]
        forms = [(each, each.act) for each in pages if each.act is not None]
        return [
            *(web.get(each.path, self._handler(self._page(each), on_reply)) for each in pages),
            *(
                web.post(each.path, self._handler(self._form(each, act), on_reply))
                for each, act in forms
            ),
            web.get(PREFIX + "/{name}", _asset),
        ]

    def _handler(
        self,
        work: Work,
        on_reply: Callable[[web.Request], None],
    ) -> Callable[[web.Request], Reply]:
        async def handle(request: web.Request) -> web.StreamResponse:
            caller, rights = caller_of(request), _NO_RIGHTS
            async with AsyncExitStack() as stack:
                try:
                    check_site(request.headers, self.hosts)
                    # First of all: a wrong secret key is delayed, and must hold no place.
                    rights = await self._calls.rights(caller)
                    # A slow body must hold no place, either.
                    body = await body_of(request, FORM_BYTES_MAX)
                    # The place is held until the client has read the page.
                    await stack.enter_async_context(self._places.acquire(host_of(caller.peer), 1))
                    answer = await work(request, self._asked(request, rights), body)
                except BrokerError as error:
                    asked = self._asked(request, rights)
                    answer = await self._error(asked, error, status_of(error))
                except web.HTTPRequestEntityTooLarge as error:
                    asked, status = self._asked(request, rights), HTTPStatus(error.status)
                    answer = await self._error(asked, FormTooLongError(), status)
                await skip_body(request)
                on_reply(request)
                page = answer.body if isinstance(answer.body, bytes) else b""
                return await write_pieces(request, answer.headers, [page], answer.status)

        return handle

    def _page(self, page: Page) -> Work:
        async def work(request: web.Request, asked: PageRequest, _body: bytes) -> web.Response:
            lists = {name: request.query.getall(name) for name in request.query}
            asked = replace(asked, lists=lists)
            return await self._made(request, page, asked, Entered(), None)

        return work

    def _form(self, page: Page, act: Callable[[PageRequest], Awaitable[Done]]) -> Work:
        async def work(request: web.Request, asked: PageRequest, body: bytes) -> web.Response:
            if len(body) <= SMALL_FORM_BYTES:
                lists = _fields(body)
            else:
                lists = await asyncio.to_thread(_fields, body)
            asked = replace(asked, form=_firsts(lists), lists=lists)
            try:
                self._tokens.check(request.cookies.get(COOKIE, ""), asked.form.get(FIELD, ""))
                done = await act(asked)
            except BrokerError as error:
                return await self._refused(request, page, asked, error)
            sign = "&" if "?" in done.path else "?"
            place = f"{done.path}{sign}notice={done.notice}"
            return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": place})

        return work

    async def _refused(
        self, request: web.Request, page: Page, asked: PageRequest, error: BrokerError
    ) -> web.Response:
        """Returns a form again, with its values and the error.

        Raises the error if the page of the form cannot be made, either.
        """
        lists = error.left if isinstance(error, PartlyDoneError) else asked.lists
        again = replace(asked, query=_firsts(lists), lists=lists)
        with suppress(BrokerError):
            return await self._made(request, page, again, Entered(asked.form), error)
        raise error

    async def _made(
        self,
        request: web.Request,
        page: Page,
        asked: PageRequest,
        entered: Entered,
        error: BrokerError | None,
    ) -> web.Response:
        """Returns a page; `error` is that of a refused form, which the page shows again."""
        values = dict(await page.values(asked))
        # Some pages have a form in their query, which may have an error, too.
        refusal: Any = error or values.pop(REFUSAL, None)
        cookie = request.cookies.get(COOKIE, "")
        value = self._tokens.value(cookie)
        notice = "" if refusal else NOTICES.get(request.query.get("notice", ""), "")
        frame = {
            "token": self._tokens.token(value),
            "notice": notice,
            "path": request.path,
            "entered": entered,
        }
        response = await self._response(asked, page.template, {**frame, **values}, refusal)
        if value != cookie:
            response.set_cookie(
                COOKIE, value, httponly=True, samesite="Strict", secure=request.secure
            )
            for each in response.cookies.values():
                response.headers.add("Set-Cookie", each.OutputString())
        return response

    def _asked(self, request: web.Request, rights: Rights) -> PageRequest:
        return PageRequest(
            self._calls,
            caller_of(request),
            rights,
            self._clock.now_ms(),
            request.match_info,
            request.query,
        )

    async def _error(
        self, asked: PageRequest, error: BrokerError, status: HTTPStatus
    ) -> web.Response:
        """Returns the page that reports an error of the broker."""
        values = {"status": status, "token": "", "notice": "", "path": ""}
        return await self._response(asked, "error.html", values, error, status)

    async def _response(
        self,
        asked: PageRequest,
        template: str,
        values: Mapping[str, object],
        error: BrokerError | None,
        status: HTTPStatus | None = None,
    ) -> web.Response:
        if status is None:
            status = HTTPStatus.OK if error is None else status_of(error)
        shown = "" if error is None else error.remark
        frame = {
            **self._frame,
            "may": asked.may,
            "may_act": (lambda *_, **__: False) if self._is_read_only else asked.may,
            "may_open_group": asked.may_open_group,
            "may_open_topic": asked.may_open_topic,
            "slave_refusal": asked.rights.slave_refusal,
            REFUSAL: shown,
        }
        body = await rendered(template, {**values, **frame})
        headers = CHALLENGE if status is HTTPStatus.UNAUTHORIZED else {}
        return web.Response(status=status, body=body, headers={**HEADERS, **headers})


def _firsts(lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in lists.items()}


def _fields(body: bytes) -> dict[str, list[str]]:
    """Returns the fields of a form. Raises ParameterIllegalError."""
    found: dict[str, list[str]] = {}
    try:
        # An empty field is a value: it removes the former one.
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
    """Returns a file; a browser may keep it, since its address has its hash."""
    found = assets().get(request.match_info["name"])
    if found is None:
        raise web.HTTPNotFound
    headers = {
        "Content-Type": found.type,
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(body=found.content, headers=headers)

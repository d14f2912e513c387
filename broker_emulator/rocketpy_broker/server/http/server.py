"""The HTTP server: `/metrics`, `/healthz`, the JSON API and the console.

`connections` has the limits of a client. With users, `/metrics` needs a monitor or an admin, and
`/api/v1` a user with the permission. `/healthz` stays open and shows no names or counts. It answers
under any host name: supervisors and load balancers may use names that the broker does not know.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import ListenAddress, PortInUseError, listen
from rocketpy_broker.server.calls.failure_log import TEXT_MAX, FailureLog, PeerLines
from rocketpy_broker.server.http.api.cross_site import ForeignSiteError, HostRule
from rocketpy_broker.server.http.api.endpoint import (
    CHALLENGE,
    http_error_response,
    is_api,
    json_errors,
)
from rocketpy_broker.server.http.connections import PIECE_BYTES, HttpConnections
from rocketpy_broker.server.http.replies import write_pieces
from rocketpy_broker.server.security.errors import NoPermissionError, UnauthenticatedError
from rocketpy_broker.server.security.http_access import HttpAccess
from rocketpy_broker.server.security.tls import TlsPort

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    # Python 3.10's class takes no type parameter at run time.
    _Adapter = logging.LoggerAdapter

logger = logging.getLogger(__name__)

# The limit of a request's line, and of each header field.
LINE_BYTES_MAX = 8_190
# The grace time for running requests, and once more for cancelled ones.
STOP_SECONDS = 0.5
_READS = frozenset({"GET", "HEAD"})
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = (
    "this broker answers GET /metrics, GET /healthz, GET /api/v1/openapi.json, and GET / with its "
    "console\n"
)


class HttpRoutes(Protocol):
    """A part of the server below paths of its own."""

    hosts: HostRule

    def routes(self, on_reply: Callable[[web.Request], None]) -> list[web.RouteDef]:
        """Returns its routes, which call `on_reply` when an answer is about to be written."""


class HttpServer:
    """An HTTP server in the running event loop.

    `routes` are the JSON API and the console. `metrics` returns the text of all metrics in pieces.
    `refusal` returns the reason why the store takes no messages, empty while it takes messages.
    """

    def __init__(
        self,
        address: ListenAddress,
        metrics: Callable[[], Awaitable[Sequence[bytes]]],
        refusal: Callable[[], str],
        clock: Clock,
        routes: Sequence[HttpRoutes],
        access: HttpAccess | None = None,
        tls: TlsPort | None = None,
    ) -> None:
        self._access = access
        self._address = address
        self._metrics = metrics
        self._refusal = refusal
        self._clock = clock
        self._failures = FailureLog(clock)
        self._hosts = [each.hosts for each in routes]
        self._is_stopping = False
        self.connections = HttpConnections(self._new_protocol, clock, tls)
        app = web.Application(middlewares=[json_errors, self._guard])
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        for each in routes:
            app.router.add_routes(each.routes(self._replies))
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            logger=_Malformed(clock),
            # A body that inflates to many bytes would hold the event loop.
            auto_decompress=False,
            read_bufsize=PIECE_BYTES,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=STOP_SECONDS,
        )
        self._server: asyncio.Server | None = None

    async def start(self, scope: TaskScope) -> int:
        """Binds the address, starts serving and returns the port. Raises PortInUseError."""
        await self._runner.setup()
        try:
            self._server, port = await listen(self._address, self.connections.new)
        except PortInUseError:
            await self._runner.cleanup()
            raise
        scope.start(self._close_old())
        return port

    def stopping(self) -> None:
        """Makes `/healthz` report, until `stop`, that the broker stops."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Refuses new requests; closes idle connections at once, busy ones after STOP_SECONDS."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()
        self.connections.abort_all()

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self.connections)

    def _replies(self, request: web.Request) -> None:
        self.connections.replies(request.protocol)

    def _new_protocol(self) -> web.RequestHandler:
        assert self._runner.server is not None
        return self._runner.server()

    async def _close_old(self) -> None:
        while True:
            await sleep(self._clock, 1_000)
            self.connections.abort_old()

    # --- Requests ---

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        # Only an action that exists takes a body.
        has_body = request.method not in _READS and request.match_info.http_exception is None
        self.connections.begins(request.protocol, request.content if has_body else None)
        try:
            if self._is_stopping and is_api(request.path):
                return http_error_response(web.HTTPServiceUnavailable())
            return await handler(request)
        except web.HTTPNotFound as error:
            raise web.HTTPNotFound(text=PATHS) from error
        except web.HTTPException:
            raise
        except UnauthenticatedError as error:
            return web.Response(status=401, text=f"{error.remark}\n", headers=CHALLENGE)
        except (NoPermissionError, ForeignSiteError) as error:
            return web.Response(status=403, text=f"{error.remark}\n")
        except Exception as error:
            # Not the path itself, which may hold line breaks.
            resource = request.match_info.route.resource
            place = "" if resource is None else resource.canonical
            self._failures.log(request.remote or "", f"HTTP {request.method} {place}", error)
            raise web.HTTPInternalServerError(
                text="the broker failed with an unknown error and logged it\n"
            ) from error
        finally:
            self.connections.ends(request.protocol)

    async def _get_metrics(self, request: web.Request) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not all(each.allows(host) for each in self._hosts):
            raise ForeignSiteError("Host", host)
        if self._access is not None:
            authorization = request.headers.get("Authorization", "")
            await self._access.check_monitor(authorization, request.remote or "")
        page = await self._metrics()
        self.connections.replies(request.protocol)
        return await write_pieces(request, {"Content-Type": METRICS_TYPE}, page)

    async def _get_health(self, _request: web.Request) -> web.Response:
        refusal = self._refusal()
        found = {
            "status": "stopping" if self._is_stopping else "serving",
            "writable": not refusal,
            "refusal": refusal,
        }
        return web.Response(
            text=json.dumps(found) + "\n",
            status=503 if self._is_stopping else 200,
            content_type="application/json",
        )


class _Malformed(_Adapter):
    """A logger of malformed requests: one line per peer and minute, no traces."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logger, {})
        self._peers = PeerLines(clock)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_kwargs: Any) -> None:
        """Logs a connection that aiohttp ended, without its trace."""
        text = str(msg) % args
        withheld = self._peers.due(text)
        if withheld is not None:
            line = " ".join(f"{text}: {exc_info}"[:TEXT_MAX].split())
            logger.warning("HTTP: %s; %d more since the last such line", line, withheld)

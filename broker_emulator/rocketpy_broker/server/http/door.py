"""HTTP beside gRPC: `/metrics` for Prometheus, `/healthz` for whoever looks after the process.

It only tells, and takes no orders. CONNECTIONS_MAX are open at a time, more are closed at once, and
each is closed after CONNECTION_SECONDS whatever it does: so a client that reads slowly, or sends
half a request, costs little. Lives in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from rocketpy_broker.clock import Clock, sleep
from rocketpy_broker.server.exposure import PortInUseError
from rocketpy_broker.server.failure_log import FailureLog
from rocketpy_broker.tasks import TaskScope

CONNECTIONS_MAX = 64
CONNECTION_SECONDS = 60
# Of a request's line, and of all its headers.
LINE_BYTES_MAX = 8_190
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = "this broker answers GET /metrics and GET /healthz\n"


class HttpDoor:
    """Serves HTTP from the running event loop.

    `metrics` gives the text of all metrics. `refusal` says why the store takes no messages, and is
    empty while it does.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], Awaitable[bytes]],
        refusal: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._refusal = refusal
        self._clock = clock
        self._failures = FailureLog(clock)
        self._is_stopping = False
        # When each connection is to be closed.
        self._ends_ms: dict[web.RequestHandler, float] = {}
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=1.0,
        )
        self._server: asyncio.Server | None = None

    async def start(self, scope: TaskScope) -> int:
        """Listen; return the port. Raises PortInUseError."""
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connection, self._host.strip("[]"), self._port
            )
        except OSError as error:
            await self._runner.cleanup()
            raise PortInUseError(self._host, self._port, "--http-port") from error
        scope.start(self._close_old())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Take no more requests, and close all connections."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    # --- Connections ---

    @property
    def connection_count(self) -> int:
        """How many are open."""
        self._forget_closed()
        return len(self._ends_ms)

    def _connection(self) -> asyncio.BaseProtocol:
        if self.connection_count >= CONNECTIONS_MAX:
            return _Refused()
        assert self._runner.server is not None
        protocol = self._runner.server()
        self._ends_ms[protocol] = self._clock.monotonic_ms() + CONNECTION_SECONDS * 1_000
        return protocol

    def _forget_closed(self) -> None:
        assert self._runner.server is not None
        now_ms = self._clock.monotonic_ms()
        is_open = set(self._runner.server.connections)
        for protocol, end_ms in [*self._ends_ms.items()]:
            # One that is new is not connected before the loop's next turn.
            is_new = end_ms - now_ms > (CONNECTION_SECONDS - 1) * 1_000
            if protocol not in is_open and not is_new:
                del self._ends_ms[protocol]

    async def _close_old(self) -> None:
        while True:
            await sleep(self._clock, 1_000)
            self._forget_closed()
            now_ms = self._clock.monotonic_ms()
            for protocol, end_ms in [*self._ends_ms.items()]:
                if end_ms <= now_ms:
                    protocol.force_close()

    # --- Requests ---

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return web.Response(status=404, text=PATHS)
        except web.HTTPException:
            raise
        except Exception as error:
            self._failures.tell(request.remote or "", request.path, error)
            raise web.HTTPInternalServerError(
                text="the broker failed in a way that it does not know, and has logged it\n"
            ) from error

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._metrics(), headers={"Content-Type": METRICS_TYPE})

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


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()

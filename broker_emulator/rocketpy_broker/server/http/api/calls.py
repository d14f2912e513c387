"""Calls of the contract's methods in this process.

A method gets the bytes of its request and returns the bytes of its answer, as over gRPC. The guard
of gRPC's calls wraps it. So limits, permissions, errors and metrics are the same.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.calls.guard import CallGuard, GuardedHandlers
from rocketpy_broker.server.http.api.routes import method_of
from rocketpy_broker.server.rocketpy_v1.services import RocketpyV1Services
from rocketpy_broker.server.security.rocketpy_v1_access import Rights, RocketpyV1Access
from rocketpy_proto.bearer_token import AUTHORIZATION
from rocketpy_proto.model.codes import ResponseCode

# Success, and the codes of pulls without messages.
_WITHOUT_FAULT = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


# Sends of dead letters that are remembered; each takes about 150 bytes.
RESENDS_MAX = 20_000


class RefusedCallError(BrokerError):
    """An error that a method has returned."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.number = code


class FirstAnswerError(grpc.aio.BaseError):
    """The end of a call whose first answer is enough."""


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """The client of a call: its address and the value of its header `Authorization`."""

    peer: str
    authorization: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of gRPC by which the user is known."""
        return ((AUTHORIZATION, self.authorization),)


class InnerContext:
    """The context of one call, in place of gRPC's. It has one request and keeps one answer."""

    def __init__(self, caller: HttpCaller, request: bytes, *, is_cut: bool) -> None:
        """Takes in `is_cut` True for a call that ends at its first answer."""
        self._caller = caller
        self._request: bytes | None = request
        self._is_cut = is_cut
        self.answer: bytes | None = None

    def peer(self) -> str:
        """Returns the client's address."""
        return self._caller.peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata by which the user is known."""
        return self._caller.metadata

    async def read(self) -> Any:
        """Returns the request, and then EOF."""
        request, self._request = self._request, None
        return grpc.aio.EOF if request is None else request

    async def write(self, answer: bytes) -> None:
        """Keeps the first answer. Raises FirstAnswerError where it is enough."""
        if self.answer is None:
            self.answer = answer
        if self._is_cut:
            raise FirstAnswerError


@dataclass(frozen=True, slots=True)
class _Details:
    """The name of a method, as gRPC's handlers get it."""

    method: str


class Resends:
    """The newest sends of dead letters by these calls, by the letter's offset in the log."""

    def __init__(self) -> None:
        self._sent_ms: OrderedDict[int, int] = OrderedDict()

    def add(self, log_offset: int, now_ms: int) -> None:
        """Remembers the send of a letter or an edited copy; forgets the oldest beyond the limit."""
        self._sent_ms[log_offset] = now_ms
        self._sent_ms.move_to_end(log_offset)
        if len(self._sent_ms) > RESENDS_MAX:
            self._sent_ms.popitem(last=False)

    def sent_ms(self, log_offset: int) -> int | None:
        """Returns the time of a letter's last send; None if none is remembered."""
        return self._sent_ms.get(log_offset)


class InnerCalls:
    """The methods of rocketpy.v1, for callers in this process."""

    def __init__(
        self, services: RocketpyV1Services, guard: CallGuard, access: RocketpyV1Access | None
    ) -> None:
        self._access = access
        self.resends = Resends()
        self._handlers = [
            GuardedHandlers(each, guard, services.failure, access) for each in services.handlers()
        ]

    async def authenticate(self, caller: HttpCaller, rpc: str) -> None:
        """Returns if the user is known, after the delay for earlier failures.

        `call` checks the user again, and the user's permissions. Raises UnauthenticatedError.
        """
        if self._access is not None:
            await self._access.admitted(_method(rpc), caller.metadata, caller.peer)

    async def rights(self, caller: HttpCaller) -> Rights:
        """Returns a user's permissions, delayed as a call is. Raises UnauthenticatedError."""
        if self._access is None:
            return Rights()
        return await self._access.rights(caller.metadata, caller.peer)

    async def call(self, caller: HttpCaller, rpc: str, request: Message) -> Any:
        """Returns the answer of a method, or the first one of a stream. Raises RefusedCallError."""
        described = method_of(rpc)
        details: Any = _Details(_method(rpc))
        handler: Any = next(found for each in self._handlers if (found := each.service(details)))
        is_cut = described.server_streaming and not described.client_streaming
        context = InnerContext(caller, request.SerializeToString(), is_cut=is_cut)
        if handler.response_streaming:
            with contextlib.suppress(FirstAnswerError):
                await handler.stream_stream(None, context)
            data = context.answer
        else:
            data = await handler.stream_unary(None, context)
        assert data is not None
        answer: Any = GetMessageClass(described.output_type).FromString(data)
        check(answer)
        return answer


def _method(rpc: str) -> str:
    """Returns the name of a method in gRPC."""
    return f"/rocketpy.v1.{rpc}"


def check(answer: Any) -> None:
    """Raises RefusedCallError for an answer, or an entry of one, that reports an error."""
    if answer.status.code not in _WITHOUT_FAULT:
        raise RefusedCallError(answer.status.code, answer.status.remark)

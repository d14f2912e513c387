"""Calls to a peer: a typed, signed request and its checked answer.

No call is repeated here: only its caller knows if a repetition does harm. All threads of a process
share its connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.connection import OutgoingRequest, Pending
from pyspark_rocketpy.transport.remoting.net.connections import SHARED, Connections
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import refusal
from rocketpy_proto.remoting import (
    EXCHANGES,
    FRAME_BYTES_MAX,
    Header,
    NoFields,
    RemotingCommand,
    RequestCode,
    ResponseCode,
)
from rocketpy_proto.tls import TlsConfig

T = TypeVar("T")

# Limits of answer bodies. The JSON limit is loose: a list of 10,000 topics with the longest names
# has 1.3 MB. A hostile text of this size keeps the parser busy for a second.
NO_BODY_BYTES_MAX = 64 << 10
JSON_BODY_BYTES_MAX = 2 << 20
RECORDS_BYTES_MAX = FRAME_BYTES_MAX
_SUCCESS = frozenset({ResponseCode.SUCCESS})


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Name servers, timeouts, TLS and access keys. A plain value, which travels to tasks."""

    name_servers: tuple[str, ...]
    connect: Timeouts
    request: Timeouts
    tls: TlsConfig | None = None
    access: AccessKeys | None = None


class Request(msgspec.Struct, Generic[T], frozen=True):
    """A request, and the reader of an answer with one of the accepted codes."""

    code: RequestCode
    read: Callable[[Peer, RemotingCommand], T]
    header: Header = msgspec.field(default_factory=NoFields)
    body: bytes | memoryview = b""
    body_bytes_max: int = NO_BODY_BYTES_MAX
    accepted: frozenset[ResponseCode] = _SUCCESS
    # Timeouts in place of the cluster's.
    timeouts: Timeouts | None = None
    # The header, if the caller has encoded it already.
    ext_fields: Mapping[str, str] | None = None


def _ignore(_error: ConnectionFailedError | BrokerError) -> None:
    """Ignores an error."""


class Call(msgspec.Struct, Generic[T], frozen=True):
    """A request on its way; the connection takes further requests before the answer."""

    peer: Peer
    request: Request[T]
    pending: Pending
    # Is called with an error before the error is raised.
    on_failure: Callable[[ConnectionFailedError | BrokerError], None] = _ignore

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Returns the fields without the request, which may hold secrets."""
        return [("pending", self.pending)]

    def __repr__(self) -> str:
        """Returns the same fields as text."""
        return f"Call({self.pending})"

    @property
    def is_answered(self) -> bool:
        """True if `answer` returns or raises at once."""
        return self.pending.is_over

    def leave(self) -> None:
        """Discards the answer."""
        self.pending.leave()

    def answer(self) -> T:
        """Returns the answer once it is here. Raises ConnectionFailedError, BrokerError."""
        try:
            answer = self.pending.answer()
            if answer.code not in self.request.accepted:
                raise refusal(self.peer, answer)
            return self.request.read(self.peer, answer)
        except (ConnectionFailedError, BrokerError) as error:
            self.on_failure(error)
            raise


def outcomes(
    sends: Iterable[Callable[[], Call[T]]],
) -> list[T | ConnectionFailedError | BrokerError]:
    """Sends all requests, then waits for all answers; an error takes the place of an answer."""
    calls = [_outcome(send) for send in sends]
    return [_outcome(call.answer) if isinstance(call, Call) else call for call in calls]


def _outcome(get: Callable[[], T]) -> T | ConnectionFailedError | BrokerError:
    try:
        return get()
    except (ConnectionFailedError, BrokerError) as error:
        return error


class RequestSender:
    """A sender of requests to any peer, with one configuration."""

    def __init__(self, config: ClusterConfig, connections: Connections = SHARED) -> None:
        self._config = config
        self._connections = connections

    def ask(self, peer: Peer, request: Request[T]) -> Call[T]:
        """Sends a request; opens a connection if there is none.

        Raises ConnectionFailedError, OptionError. Raises UnencodableRemotingError for values that
        no request can hold.
        """
        return self.ask_all(peer, [request])[0]

    def ask_all(
        self,
        peer: Peer,
        requests: Sequence[Request[T]],
        on_failure: Callable[[ConnectionFailedError | BrokerError], None] = _ignore,
    ) -> list[Call[T]]:
        """Sends requests in one write, which costs less than one by one. Raises as `ask`."""
        config = self._config
        outgoing_requests = [self._outgoing(request) for request in requests]
        try:
            connection = self._connections.get(peer, config.connect, config.tls)
        except ConnectionFailedError as error:
            on_failure(error)
            raise
        asked = connection.ask_all(outgoing_requests)
        return [
            Call(peer, request, pending, on_failure)
            for request, pending in zip(requests, asked, strict=True)
        ]

    def _outgoing(self, request: Request[T]) -> OutgoingRequest:
        config = self._config
        fields = request.ext_fields
        if fields is None:
            fields = EXCHANGES[request.code].request.encode(request.header)
        command = RemotingCommand(request.code, opaque=0, ext_fields=fields, body=request.body)
        if config.access is not None:
            command = config.access.sign(command)
        return OutgoingRequest(command, request.timeouts or config.request, request.body_bytes_max)

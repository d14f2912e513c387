"""Calls: a typed request to a peer, signed, over the process's connection; its checked answer.

Nothing is repeated here: who calls knows whether that does harm. Holds no state but what it is
given; connections belong to the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.connection import OutgoingRequest, Pending
from pyspark_rocketpy.transport.remoting.net.connections import SHARED, Connections
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import refusal
from pyspark_rocketpy.transport.remoting.net.streams import TlsConfig
from rocketpy_proto.remoting import (
    EXCHANGES,
    FRAME_BYTES_MAX,
    Header,
    NoFields,
    RemotingCommand,
    RequestCode,
    ResponseCode,
)

T = TypeVar("T")

# What the body of an answer may have. JSON is as good as none: a list of 10,000 topics with the
# longest names has 1.3 MB. A hostile text of this size keeps the parser busy for a second.
NO_BODY_BYTES_MAX = 64 << 10
JSON_BODY_BYTES_MAX = 2 << 20
RECORDS_BYTES_MAX = FRAME_BYTES_MAX
_SUCCESS = frozenset({ResponseCode.SUCCESS})


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Whom to ask first, how patiently, and as whom. A plain value, which travels to tasks."""

    name_servers: tuple[str, ...]
    connect: Timeouts
    request: Timeouts
    tls: TlsConfig | None = None
    access: AccessKeys | None = None


class Request(msgspec.Struct, Generic[T], frozen=True):
    """What is asked, and how an answer with one of the accepted codes is read."""

    code: RequestCode
    read: Callable[[Peer, RemotingCommand], T]
    header: Header = msgspec.field(default_factory=NoFields)
    body: bytes | memoryview = b""
    body_bytes_max: int = NO_BODY_BYTES_MAX
    accepted: frozenset[ResponseCode] = _SUCCESS
    # In place of the usual one.
    patience: Timeouts | None = None
    # The header, where who asks has it encoded already.
    ext_fields: Mapping[str, str] | None = None


def _ignore(_error: ConnectionFailedError | BrokerError) -> None:
    """What nobody wants to know of."""


class Call(msgspec.Struct, Generic[T], frozen=True):
    """A request that is on its way; others may be sent before it is answered."""

    peer: Peer
    request: Request[T]
    pending: Pending
    # Hears of an error before it is raised.
    on_failure: Callable[[ConnectionFailedError | BrokerError], None] = _ignore

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Without the request, which may hold secrets."""
        return [("pending", self.pending)]

    def __repr__(self) -> str:
        """Returns the same."""
        return f"Call({self.pending})"

    @property
    def is_answered(self) -> bool:
        """True if `answer` returns or raises at once."""
        return self.pending.is_over

    def leave(self) -> None:
        """Nobody wants the answer any more."""
        self.pending.leave()

    def answer(self) -> T:
        """Waits for it. Raises ConnectionFailedError, BrokerError."""
        try:
            answer = self.pending.answer()
            if answer.code not in self.request.accepted:
                raise refusal(self.peer, answer)
            return self.request.read(self.peer, answer)
        except (ConnectionFailedError, BrokerError) as error:
            self.on_failure(error)
            raise


class Caller:
    """Asks whomever the configuration lets it."""

    def __init__(self, config: ClusterConfig, connections: Connections = SHARED) -> None:
        self._config = config
        self._connections = connections

    def ask(
        self,
        peer: Peer,
        request: Request[T],
        on_failure: Callable[[ConnectionFailedError | BrokerError], None] = _ignore,
    ) -> Call[T]:
        """Sends a request; a connection is opened where there is none.

        Raises ConnectionFailedError, OptionError, and UnencodableRemotingError for values that no
        request holds.
        """
        return self.ask_all(peer, [request], on_failure)[0]

    def ask_all(
        self,
        peer: Peer,
        requests: Sequence[Request[T]],
        on_failure: Callable[[ConnectionFailedError | BrokerError], None] = _ignore,
    ) -> list[Call[T]]:
        """Sends requests in one go, which costs less than one by one. Raises as `ask`."""
        config = self._config
        questions = [self._question(request) for request in requests]
        try:
            connection = self._connections.get(peer, config.connect, config.tls)
        except ConnectionFailedError as error:
            on_failure(error)
            raise
        asked = connection.ask_all(questions)
        return [
            Call(peer, request, pending, on_failure)
            for request, pending in zip(requests, asked, strict=True)
        ]

    def _question(self, request: Request[T]) -> OutgoingRequest:
        config = self._config
        fields = request.ext_fields
        if fields is None:
            fields = EXCHANGES[request.code].request.encode(request.header)
        command = RemotingCommand(request.code, opaque=0, ext_fields=fields, body=request.body)
        if config.access is not None:
            command = config.access.sign(command)
        return OutgoingRequest(command, request.patience or config.request, request.body_bytes_max)

"""A gRPC channel to a broker, and calls with declared errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from ipaddress import IPv6Address
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rocketpy_broker.client.errors import (
    CallFailedError,
    ClientError,
    RefusedError,
    UnreachableError,
    UnreadableError,
)
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_proto import proxies
from rocketpy_proto.bearer_channel import with_token
from rocketpy_proto.pull_wire import PullResponseParts, deserialize
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
    groups_pb2_grpc,
    retry_pb2_grpc,
    testing_pb2_grpc,
    transactions_pb2_grpc,
)
from rocketpy_proto.texts import is_port
from rocketpy_proto.tls import TlsConfig, TlsFileError, TlsNames
from rocketpy_proto.tls_channel import channel_to, failure_reason

REQUEST_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 1.0
PULL_METHOD = "/rocketpy.v1.Broker/Pull"
# The size of a broker's largest answer: one message and its frame.
ANSWER_BYTES_MAX = 64 << 20
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", ANSWER_BYTES_MAX),
    # gRPC would read some MiB of each pull ahead, and a reader has many pulls open.
    ("grpc.http2.bdp_probe", 0),
    # A broker that reuses another broker's port needs a new connection.
    ("grpc.use_local_subchannel_pool", 1),
]
_TLS_NAMES = TlsNames("tls", "ca_file", "cert_file", "key_file", "server_name")


T = TypeVar("T")


class BrokerConnection:
    """A connection to a broker's services with synchronous calls; close it after use.

    It is in plaintext without `tls`.
    """

    def __init__(
        self,
        endpoint: str,
        access_key: str | None = None,
        secret_key: str | None = None,
        *,
        tls: TlsConfig | None = None,
        names: TlsNames = _TLS_NAMES,
        seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        """Takes a user and its secret key for a broker with users.

        `names` are the names of the TLS options in errors. A request without a limit of its own may
        take `seconds_max`.
        Raises ClientError for an endpoint or files that no connection can use.
        """
        check_endpoint(endpoint)
        self.endpoint = endpoint
        self.seconds_max = seconds_max
        self._tls, self._names = tls, names
        options = [*_CHANNEL_OPTIONS, *proxies.channel_options(endpoint)]
        try:
            channel = channel_to(endpoint, options, tls)
        except TlsFileError as error:
            assert tls is not None
            raise ClientError(error.text(tls, names)) from error
        self._channel = with_token(channel, access_key, secret_key, SystemClock().now_ms)
        self.admin = admin_pb2_grpc.AdminStub(self._channel)
        self.broker = broker_pb2_grpc.BrokerStub(self._channel)
        self.groups = groups_pb2_grpc.GroupsStub(self._channel)
        self.transactions = transactions_pb2_grpc.TransactionsStub(self._channel)
        self.retry = retry_pb2_grpc.RetryStub(self._channel)
        self.testing = testing_pb2_grpc.TestingStub(self._channel)
        # The stub would copy each response once more.
        self._pull = self._channel.unary_stream(
            PULL_METHOD,
            request_serializer=broker_pb2.PullRequest.SerializeToString,
            response_deserializer=deserialize,
        )

    def close(self) -> None:
        """Closes the channel.

        gRPC waits for started calls. It never returns if KeyboardInterrupt came just when a call
        started. So a daemon thread closes the channel. This method waits CLOSE_SECONDS_MAX for it.
        """
        closing = threading.Thread(target=self._channel.close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS_MAX)

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(
        self,
        method: Callable[..., Any],
        request: Message,
        seconds_max: float | None = None,
    ) -> Any:
        """Returns the broker's answer to a request.

        Raises UnreachableError, CallFailedError, RefusedError.
        """
        with self.faults():
            answer = method(request, timeout=seconds_max or self.seconds_max)
        raise_refusal(answer.status)
        return answer

    def pages(
        self,
        method: Callable[..., Any],
        request: Any,
        next_place: Callable[[Any], object],
        place: str = "after",
        seconds_max: float | None = None,
    ) -> Iterator[Any]:
        """Yields the pages of a list; `place` is the request's field for the start of a page.

        `next_place` returns the start of the page after a page, or None after the last.
        Raises the errors of `ask`, and UnreadableError for a page that makes no progress.
        """
        while True:
            page = self.ask(method, request, seconds_max)
            yield page
            following: Any = next_place(page)
            if following is None:
                return
            begin = getattr(request, place)
            if following <= begin:
                raise UnreadableError(
                    f"the broker's listing does not end: {following!r:.200} follows "
                    f"{begin!r:.200}. List it again"
                )
            setattr(request, place, following)

    def entries(
        self,
        method: Callable[..., Any],
        request: Any,
        entries: str,
        name: str,
        seconds_max: float | None = None,
    ) -> Iterator[Any]:
        """Yields the entries of a list that is sorted by name.

        A page starts after the last name of the page before it. `entries` is the field of a page,
        `name` the field of an entry. Raises as `pages`.
        """

        def next_place(page: Any) -> str | None:
            names = [getattr(each, name) for each in getattr(page, entries)]
            return last_name(names, has_more=page.has_more)

        for page in self.pages(method, request, next_place, seconds_max=seconds_max):
            yield from getattr(page, entries)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turns gRPC errors of its block into UnreachableError and CallFailedError."""
        try:
            yield
        except grpc.RpcError as error:
            name = error.code().name
            if error.code() in _UNREACHABLE:
                raise UnreachableError(self.endpoint, name, self._reason(error)) from error
            raise CallFailedError(self.endpoint, name, error.details() or "") from error

    def _reason(self, error: grpc.RpcError) -> str | None:
        """Returns the TLS fault because of which no broker answers; None for another fault."""
        # A time-out in plaintext has no reason in TLS.
        if self._tls is None and error.code() is not grpc.StatusCode.UNAVAILABLE:
            return None
        return failure_reason(self.endpoint, self._tls, self._names)

    @cached_property
    def limits(self) -> admin_pb2.GetBrokerInfoResponse:
        """The broker's limits in bytes, requested once.

        Raises UnreachableError, CallFailedError, RefusedError, UnreadableError.
        """
        info: admin_pb2.GetBrokerInfoResponse = self.ask(
            self.admin.GetBrokerInfo, admin_pb2.GetBrokerInfoRequest()
        )
        if info.body_bytes_max <= 0 or info.request_bytes_max <= 0:
            raise UnreadableError(
                f"the broker at {self.endpoint} answers GetBrokerInfo with body_bytes_max "
                f"{info.body_bytes_max} and request_bytes_max {info.request_bytes_max}, accepted "
                "is more than 0. Name the endpoint of another broker"
            )
        return info

    def health(self, seconds_max: float) -> health_pb2.HealthCheckResponse.ServingStatus:
        """Returns the status of the broker's health service.

        Raises UnreachableError, CallFailedError.
        """
        stub = health_pb2_grpc.HealthStub(self._channel)
        with self.faults():
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=seconds_max)
        return answer.status

    def pull(
        self, request: broker_pb2.PullRequest, seconds_max: float
    ) -> Iterator[PullResponseParts]:
        """Yields the responses of a Pull call. Raises grpc.RpcError."""
        call = self._pull(request, timeout=seconds_max)
        try:
            yield from call
        finally:
            call.cancel()


def check_endpoint(endpoint: object) -> None:
    """Raises ClientError unless the endpoint is host:port."""
    host, _, port = endpoint.rpartition(":") if isinstance(endpoint, str) else ("", "", "")
    # The last part of an IPv6 address without brackets would count as the port.
    is_host = "/" not in host and host.split() == [host] and not _is_bare_v6(host)
    if not (is_host and is_port(port)):
        raise ClientError(
            f"the endpoint is {endpoint!r}, accepted is host:port, an IPv6 address in brackets"
        )


def _is_bare_v6(host: str) -> bool:
    try:
        return bool(IPv6Address(host))
    except ValueError:
        return False


def tls_of(
    names: TlsNames,
    ca: Path | str | None,
    certificate: Path | str | None,
    key: Path | str | None,
    server_name: str | None,
    *,
    is_used: bool,
) -> TlsConfig | None:
    """Returns the TLS of a connection; None for plaintext.

    Raises ClientError, by these names, for options that do not go together.
    """
    if not is_used and any(each is not None for each in (ca, certificate, key, server_name)):
        raise ClientError(f"options of TLS are set without {names.tls}; set it as well")
    if (certificate is None) != (key is None):
        raise ClientError(f"{names.cert} and {names.key} go together; set both, or none")
    return TlsConfig.of(ca, certificate, key, server_name) if is_used else None


def last_name(names: Sequence[str], *, has_more: bool) -> str | None:
    """Returns the name after which the next page starts; None if there is no next page."""
    if not has_more:
        return None
    return names[-1] if names else ""


def only(answers: Sequence[T], of: str) -> T:
    """Returns the only answer to a request about `of`. Raises UnreadableError."""
    if len(answers) != 1:
        raise UnreadableError(f"the broker has {len(answers)} answers about {of!r}, accepted is 1")
    return answers[0]


def raise_refusal(status: common_pb2.Status) -> None:
    """Raises RefusedError unless the status is success."""
    if status.code:
        raise RefusedError(status.code, status.remark)

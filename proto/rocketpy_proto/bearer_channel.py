"""gRPC channels whose calls carry a bearer token.

gRPC's own call credentials need TLS, but a broker on this machine has none. So an interceptor adds
the token to the metadata of each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from rocketpy_proto.bearer_token import AUTHORIZATION, SCHEME, TokenSource


class _Details(NamedTuple):
    """The details of a call, as gRPC hands them on."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """An interceptor of all kinds of calls."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens

    def _signed(self, details: Any) -> _Details:
        header = (AUTHORIZATION, f"{SCHEME} {self._tokens.token()}")
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), header],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Continues the call with a token."""
        return continuation(self._signed(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Continues the call with a token."""
        return continuation(self._signed(details), request)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Continues the call with a token."""
        return continuation(self._signed(details), requests)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Continues the call with a token."""
        return continuation(self._signed(details), requests)


def with_token(
    channel: grpc.Channel,
    access_key: str | None,
    secret_key: str | None,
    now_ms: Callable[[], int],
) -> grpc.Channel:
    """Returns the channel with a token for each call; unchanged without an access key."""
    if not access_key or not secret_key:
        return channel
    return grpc.intercept_channel(channel, _Bearer(TokenSource(access_key, secret_key, now_ms)))

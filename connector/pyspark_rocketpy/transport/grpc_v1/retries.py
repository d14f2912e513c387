"""Retries of calls to the broker that a client configuration names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark_rocketpy.errors import OtherStoreError
from pyspark_rocketpy.transport import retries
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient, client_for, forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.values import RetryPolicy

T = TypeVar("T")


@contextmanager
def leaving_other_stores(client: ClientConfig) -> Iterator[None]:
    """Drops the process's client if its broker has another store than the required one.

    The next call may then find the right broker at another endpoint.
    """
    try:
        yield
    except OtherStoreError:
        forget_client(client)
        raise


def retries_for(client: ClientConfig, policy: RetryPolicy) -> retries.Retries:
    """Returns retries that drop the process's client when its connection breaks."""
    return retries.Retries(policy, lambda: forget_client(client))


def retried(
    client: ClientConfig,
    policy: RetryPolicy,
    call: Callable[[GrpcClient], T],
    connected: Callable[[ClientConfig], GrpcClient] = client_for,
) -> T:
    """Returns the result of `call`, which must be idempotent and check its answers itself.

    Raises ConnectionFailedError, BrokerError.
    """

    def called() -> T:
        with leaving_other_stores(client):
            return call(connected(client))

    return retries.retried(policy, called, disconnect=lambda: forget_client(client))

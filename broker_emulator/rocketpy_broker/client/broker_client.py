"""BrokerClient: the methods of LocalBroker for a broker that already runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rocketpy_broker.client.calls.fork_calls import is_forked
from rocketpy_broker.client.calls.group_calls import GroupCalls
from rocketpy_broker.client.calls.message_calls import MessageCalls
from rocketpy_broker.client.calls.query_calls import QueryCalls
from rocketpy_broker.client.calls.topic_calls import TopicCalls
from rocketpy_broker.client.calls.transaction_calls import TransactionCalls
from rocketpy_broker.client.connection import (
    REQUEST_SECONDS_MAX,
    BrokerConnection,
    check_endpoint,
    tls_of,
)
from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.runtime.process_tuning import quiet_grpc
from rocketpy_proto.tls import TlsConfig, TlsNames

# A year: no call takes as long.
CALL_SECONDS_MAX = 366 * 86_400.0
_TLS_NAMES = TlsNames("tls", "tls_ca_file", "tls_cert_file", "tls_key_file", "tls_server_name")


class BrokerClient(TopicCalls, GroupCalls, MessageCalls, TransactionCalls, QueryCalls):
    """A client of one broker; `connect` makes it. Several threads may share it.

    Methods raise BrokerError. A refusal is a RefusedError with the broker's `response_code`, and a
    broker that does not answer is an UnreachableError. A forked process can use it, and so can a
    process that received it pickled.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        tls: TlsConfig | None = None,
        timeout_seconds: float = REQUEST_SECONDS_MAX,
    ) -> None:
        """Raises ClientError for arguments that no connection can have."""
        check_endpoint(endpoint)
        if (access_key is None) != (secret_key is None):
            raise ClientError("access_key and secret_key go together; give both, or none")
        seconds: object = timeout_seconds
        if not (isinstance(seconds, int | float) and seconds > 0):
            raise ClientError(f"timeout_seconds is {seconds!r}, accepted is a number above 0")
        self.endpoint = endpoint
        self._access_key, self._secret_key = access_key, secret_key
        self._tls = tls
        # gRPC would take a much longer time-out as one that has already ended.
        self._timeout_seconds = min(timeout_seconds, CALL_SECONDS_MAX)
        self._is_closed = False
        self._opened = self._connected()
        # A copy of this client may be in a process with another working directory.
        self._tls = None if tls is None else tls.absolute()

    def __repr__(self) -> str:
        return f"BrokerClient({self.endpoint!r})"

    def __getstate__(self) -> dict[str, object]:
        """Returns the state of a copy, which has a connection of its own."""
        return self.__dict__ | {"_opened": None, "_helper": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if not self._is_closed:
            self._opened = self._connected()

    def _connected(self) -> BrokerConnection | None:
        """Returns a new connection; its first call reaches the broker. Raises ClientError.

        A forked process gets None. Its helper process makes the calls, with a connection of its
        own.
        """
        if is_forked():
            return None
        quiet_grpc()
        return BrokerConnection(
            self.endpoint,
            self._access_key,
            self._secret_key,
            tls=self._tls,
            names=_TLS_NAMES,
            seconds_max=self._timeout_seconds,
        )

    @contextmanager
    def _connection(self) -> Iterator[BrokerConnection]:
        self._check_usable()
        assert self._opened is not None
        yield self._opened

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClientError(f"the client of {self.endpoint} is closed; connect again")

    def close(self) -> None:
        """Closes the connection. Later calls raise ClientError."""
        self._is_closed = True
        opened, self._opened = self._opened, None
        helper, self._helper = self._helper, None
        if helper is not None and helper.is_usable:
            helper.close()
        # In a forked process it is the parent's connection.
        if opened is not None and not is_forked():
            opened.close()

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    endpoint: str,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls: bool = False,
    tls_ca_file: Path | str | None = None,
    tls_cert_file: Path | str | None = None,
    tls_key_file: Path | str | None = None,
    tls_server_name: str | None = None,
    timeout_seconds: float = REQUEST_SECONDS_MAX,
) -> BrokerClient:
    """Returns a client of the broker at `endpoint`, `host:port` of its gRPC port.

        with rocketpy_broker.connect("localhost:8081") as broker:
            broker.send("orders", "a first order", keys="order-1")
            print(broker.query("orders", "order-1"))

    `access_key` and `secret_key` belong to a user. `tls` encrypts. Its files are in PEM form: the
    authorities that verify the broker, and the client's own certificate and key. `tls_server_name`
    is the name in the broker's certificate if it is not the endpoint's host. `timeout_seconds`
    limits each call. Many messages are sent and read in many calls.

    Raises ClientError for arguments that do not fit together.
    """
    files = (tls_ca_file, tls_cert_file, tls_key_file)
    return BrokerClient(
        endpoint,
        access_key=access_key,
        secret_key=secret_key,
        tls=tls_of(_TLS_NAMES, *files, tls_server_name, is_used=tls),
        timeout_seconds=timeout_seconds,
    )

"""Client of a broker: rocketpy.v1 over one gRPC channel a process.

Clients are cached by their configuration: the same worker process reads and writes in turn. A
broken connection is tried again within the connect timeout. A broken pull continues after the last
record that it delivered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    OptionError,
    OtherStoreError,
)
from pyspark_rocketpy.options.tls import TLS_NAMES
from pyspark_rocketpy.transport.grpc_v1 import answers
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.values import BrokerLimits
from rocketpy_proto import proxies
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
)
from rocketpy_proto.tls import TlsFileError

if TYPE_CHECKING:
    from grpc import _CallIterator

    from rocketpy_proto.pull_wire import BlockRequest, PullResponseParts
    from rocketpy_proto.rocketpy.v1 import retry_pb2

    PullCall: TypeAlias = _CallIterator[PullResponseParts]
    AppendCall: TypeAlias = _CallIterator[broker_pb2.AppendResponse]
    StageCall: TypeAlias = _CallIterator[broker_pb2.StageBlocksResponse]


class AnyAnswer(Protocol):
    """The answer of any method."""

    @property
    def status(self) -> common_pb2.Status:
        """The broker's status code and remark."""


AnswerT = TypeVar("AnswerT", bound=AnyAnswer)

SUCCESS, TOPIC_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED = 0, 17, 23
SYSTEM_BUSY, FLUSH_DISK_TIMEOUT = 2, 10
# The broker serves another store.
NOT_LEADER_FOR_QUEUE = 501
# Transport faults that a retry would meet again.
LASTING_FAULTS = (
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
_AWAY = "; check that the broker runs"
# Faults that mean that no broker answers in time.
_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
MESSAGE_BYTES_MAX = 64 << 20
PULL_METHOD = "/rocketpy.v1.Broker/Pull"
APPEND_METHOD, STAGE_METHOD = "/rocketpy.v1.Broker/Append", "/rocketpy.v1.Broker/StageBlocks"
_RETRIES = {
    "methodConfig": [
        # The appender repeats blocks itself.
        {
            "name": [
                {"service": "rocketpy.v1.Broker", "method": "Append"},
                {"service": "rocketpy.v1.Broker", "method": "StageBlocks"},
            ]
        },
        {
            "name": [{"service": "rocketpy.v1.Broker"}, {"service": "rocketpy.v1.Admin"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        },
    ]
}
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.service_config", json.dumps(_RETRIES)),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Two clients of one process may talk to brokers that have exchanged their ports.
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC with probing chooses by itself how much it prefetches, some MiB.
    ("grpc.http2.bdp_probe", 0),
]


@dataclass(frozen=True, slots=True)
class _Connection:
    """An endpoint that has answered."""

    endpoint: str
    channel: grpc.Channel
    limits: BrokerLimits
    broker_name: str


class GrpcClient:
    """A client of the first endpoint that answers."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConnectionFailedError, BrokerBusyError, BrokerError."""
        self._config = config
        connection = self._connect()
        self.limits = connection.limits
        self.endpoint = connection.endpoint
        self.broker_name = connection.broker_name
        self._channel = connection.channel
        self._broker = broker_pb2_grpc.BrokerStub(self._channel)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)

    @cached_property
    def _pull(self) -> Callable[..., PullCall]:
        """The Pull method; the stub's own would copy its responses once more."""
        from rocketpy_proto.pull_wire import deserialize

        pull: Callable[..., PullCall] = self._channel.unary_stream(
            PULL_METHOD,
            request_serializer=broker_pb2.PullRequest.SerializeToString,
            response_deserializer=deserialize,
        )
        return pull

    def _connect(self) -> _Connection:
        """Asks each endpoint in turn. Raises as the constructor."""
        failures: dict[str, ConnectionFailedError | BrokerError] = {}
        share_ms = self._config.connect_timeout_ms // len(self._config.endpoints)
        for endpoint in self._config.endpoints:
            # gRPC was seen to prefetch half as much again as this option allows.
            ahead = ("grpc.http2.lookahead_bytes", self._config.prefetch_bytes_max * 2 // 3)
            options = [*_CHANNEL_OPTIONS, ahead, *proxies.channel_options(endpoint)]
            channel = self._channel_to(endpoint, options)
            method = admin_pb2_grpc.AdminStub(channel).GetBrokerInfo
            request = admin_pb2.GetBrokerInfoRequest()
            try:
                info = _answer_of(endpoint, method, request, share_ms, wait_for_ready=True)
                limits = answers.limits_of(info)
            except ConnectionFailedError as error:
                channel.close()
                failures[endpoint] = self._with_reason(endpoint, error)
            except BrokerError as error:
                channel.close()
                failures[endpoint] = error
            else:
                return _Connection(endpoint, channel, limits, info.broker_name)
        raise _together(failures)

    def _channel_to(self, endpoint: str, options: Sequence[tuple[str, object]]) -> grpc.Channel:
        """Returns a channel with the user's tokens.

        Raises OptionError for files of TLS that cannot be used.
        """
        config = self._config
        if config.tls is None:
            channel = grpc.insecure_channel(endpoint, options)
        else:
            from rocketpy_proto.tls_channel import channel_to

            try:
                channel = channel_to(endpoint, options, config.tls)
            except TlsFileError as error:
                raise OptionError(error.text(config.tls, TLS_NAMES)) from error
        if config.access_key is None:
            return channel
        from rocketpy_proto.bearer_channel import with_token

        return with_token(channel, config.access_key, config.secret_key, clock.now_ms)

    def _with_reason(self, endpoint: str, error: ConnectionFailedError) -> ConnectionFailedError:
        """Returns the error with a fault of TLS, where that is its reason."""
        if error.is_lasting:
            return error
        from rocketpy_proto.tls_channel import failure_reason

        reason = failure_reason(endpoint, self._config.tls, TLS_NAMES)
        return error if reason is None else ConnectionFailedError(reason, is_lasting=True)

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def failed(self, error: grpc.RpcError) -> ConnectionFailedError:
        """Returns the declared error for a transport fault."""
        return _failed(self.endpoint, error)

    def store_id(self) -> str:
        """Returns the store that answers now: brokers may take turns at an address.

        Empty for a broker without ids. Raises ConnectionFailedError, BrokerError.
        """
        request, timeout_ms = admin_pb2.GetBrokerInfoRequest(), self._config.connect_timeout_ms
        info: admin_pb2.GetBrokerInfoResponse = self._ask(
            self._admin.GetBrokerInfo, request, timeout_ms
        )
        answers.limits_of(info)
        return info.store_id

    def write_queue_nums(self, topics: Sequence[str]) -> dict[str, int]:
        """Returns the number of each topic's queues for writing.

        Raises BrokerError for an unknown topic.
        """
        request = admin_pb2.ListTopicsRequest(topics=topics)
        response = self._ask(self._admin.ListTopics, request, self._config.connect_timeout_ms)
        return answers.write_queue_nums(response, topics)

    def query(
        self,
        method: Callable[[broker_pb2_grpc.BrokerStub], Callable[..., AnswerT]],
        request: Message,
        timeout_ms: int,
        accepted: Collection[int] = (),
    ) -> AnswerT:
        """Returns the answer to a query, which has succeeded or has one of the accepted codes.

        Raises ConnectionFailedError, BrokerError.
        """
        return self._ask(method(self._broker), request, timeout_ms, accepted)

    def pull(self, request: broker_pb2.PullRequest) -> PullCall:
        """Returns one Pull call; the caller maps its transport faults with `failed`."""
        timeout = self._config.pull_timeout_ms / 1000
        return self._pull(request, timeout=timeout, wait_for_ready=True)

    def append(self, requests: Iterator[BlockRequest[broker_pb2.AppendRequest]]) -> AppendCall:
        """Returns one Append stream without a deadline of its own.

        The caller waits for each answer with a timeout.
        """
        call: AppendCall = self._send_blocks(APPEND_METHOD, requests, broker_pb2.AppendResponse)
        return call

    def stage_blocks(
        self, requests: Iterator[BlockRequest[broker_pb2.StageBlocksRequest]]
    ) -> StageCall:
        """Returns one StageBlocks stream without a deadline of its own, as `append`."""
        call: StageCall = self._send_blocks(STAGE_METHOD, requests, broker_pb2.StageBlocksResponse)
        return call

    def _send_blocks(self, method: str, requests: Iterator[Any], answer: type[Message]) -> Any:
        """Returns the call of a method; the stub's own would copy the blocks more often."""
        from rocketpy_proto.pull_wire import serialize_block

        return self._channel.stream_stream(method, serialize_block, answer.FromString)(requests)

    def commit_batch(
        self, request: broker_pb2.CommitBatchRequest, timeout_ms: int
    ) -> broker_pb2.BatchResponse:
        """Commits a staged batch. Raises ConnectionFailedError, BrokerError."""
        response: broker_pb2.BatchResponse = self._ask(
            self._broker.CommitBatch, request, timeout_ms
        )
        answers.check_batch("CommitBatch", response, request.job)
        return response

    def query_batch(
        self, request: broker_pb2.QueryBatchRequest, timeout_ms: int
    ) -> broker_pb2.BatchResponse:
        """Returns the outcome of a batch. Raises ConnectionFailedError, BrokerError."""
        response: broker_pb2.BatchResponse = self._ask(self._broker.QueryBatch, request, timeout_ms)
        answers.check_batch("QueryBatch", response, request.job)
        return response

    def abort_batch(self, request: broker_pb2.AbortBatchRequest, timeout_ms: int) -> None:
        """Removes the staged blocks of a job. Raises ConnectionFailedError, BrokerError."""
        self._ask(self._broker.AbortBatch, request, timeout_ms)

    def send_back(
        self, request: retry_pb2.SendBackRequest, timeout_ms: int
    ) -> retry_pb2.SendBackResponse:
        """Sends messages back, once. Raises ConnectionFailedError, BrokerError."""
        from rocketpy_proto.rocketpy.v1.retry_pb2_grpc import RetryStub

        response: retry_pb2.SendBackResponse = self._ask(
            RetryStub(self._channel).SendBack, request, timeout_ms
        )
        return response

    def _ask(
        self,
        method: Callable[..., AnswerT],
        request: Message,
        timeout_ms: int,
        accepted: Collection[int] = (),
    ) -> AnswerT:
        return _answer_of(self.endpoint, method, request, timeout_ms, accepted)


def _answer_of(
    endpoint: str,
    method: Callable[..., AnswerT],
    request: Message,
    timeout_ms: int,
    accepted: Collection[int] = (),
    **how: bool,
) -> AnswerT:
    """Returns the answer to one call, after checking its status.

    Raises ConnectionFailedError, BrokerError.
    """
    try:
        response = method(request, timeout=timeout_ms / 1000, **how)
    except grpc.RpcError as error:
        raise _failed(endpoint, error) from error
    if response.status.code not in accepted:
        check(response.status)
    return response


def _failed(endpoint: str, error: grpc.RpcError) -> ConnectionFailedError:
    code, place = error.code(), f"{endpoint}{proxies.proxy_note(endpoint)}"
    fault = f"({code.name}: {error.details()})"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        problem = f"{place} answers, but is not a rocketpy broker"
    elif code in _UNANSWERED:
        problem = f"no broker answers at {place} {fault}"
    else:
        problem = f"the call to {place} failed {fault}"
    return ConnectionFailedError(f"{problem}{_AWAY}", is_lasting=code in LASTING_FAULTS)


def _together(
    failures: Mapping[str, ConnectionFailedError | BrokerError],
) -> ConnectionFailedError | BrokerError:
    """Returns one error for endpoints that all failed.

    The error is retriable if any of them is.
    """
    texts = []
    for endpoint, error in failures.items():
        text = str(error).removeprefix(f"{error.code}: ").removesuffix(_AWAY)
        texts.append(f"{endpoint}: {text}" if isinstance(error, BrokerError) else text)
    text = f"{'; '.join(texts)}; check option endpoints and that the broker runs"
    kinds = [type(error) for error in failures.values()]
    retriable_first = (BrokerBusyError, ConnectionFailedError, OtherStoreError, BrokerError)
    kind = next(kind for kind in retriable_first if kind in kinds)
    if kind is not ConnectionFailedError:
        return kind(text)
    is_lasting = all(getattr(error, "is_lasting", False) for error in failures.values())
    return ConnectionFailedError(text, is_lasting=is_lasting)


def check(status: common_pb2.Status) -> None:
    """Raises BrokerError for any status but success, BrokerBusyError if a retry may succeed.

    Raises OtherStoreError if another store answers than the required one.
    """
    text = f"{status.remark} (response code {status.code})"
    if status.code in {SYSTEM_BUSY, FLUSH_DISK_TIMEOUT}:
        raise BrokerBusyError(text)
    if status.code == NOT_LEADER_FOR_QUEUE:
        raise OtherStoreError(text)
    if status.code != SUCCESS:
        raise BrokerError(text)


_clients: dict[ClientConfig, GrpcClient] = {}


def client_for(config: ClientConfig) -> GrpcClient:
    """Returns this process's client for `config`, created at its first use.

    Raises ConnectionFailedError.
    """
    client = _clients.get(config)
    if client is None:
        client = _clients[config] = GrpcClient(config)
    return client


def forget_client(config: ClientConfig) -> None:
    """Drops a client that lost its broker: the next use asks all endpoints again."""
    client = _clients.pop(config, None)
    if client is not None:
        client.close()

"""A cluster's name servers: the brokers of each topic, and all topics.

Each server knows everything. So the server that answered last is asked first. If it fails, each
other server is asked once. A restarted server knows no topic until brokers register, for up to 30
s. So a topic is unknown if all servers that answer report so. State is the server that answered
last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    TopicNotExistError,
)
from pyspark_rocketpy.transport.remoting.net.calls import (
    JSON_BODY_BYTES_MAX,
    Request,
    RequestSender,
)
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from pyspark_rocketpy.transport.remoting.net.responses import (
    BUSY_CODES,
    BodyT,
    body_of,
    json_reader,
)
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.bodies.routes import ClusterInfo, TopicList, TopicRouteData
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest

T = TypeVar("T")
# A server that is not ready answers code 1.
_ASK_NEXT = BUSY_CODES | {ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST}


class NameServers:
    """The name servers at these addresses, each `host:port`."""

    def __init__(self, addresses: tuple[str, ...], caller: RequestSender) -> None:
        self._peers = [Peer(address, is_name_server=True) for address in addresses]
        self._caller = caller
        self._current = 0

    def route(self, topic: str) -> TopicRouteData:
        """Returns a topic's route.

        Raises TopicNotExistError, ConnectionFailedError, BrokerError.
        """
        return self._ask(_route(topic))

    def routes(self, topics: Sequence[str]) -> dict[str, TopicRouteData]:
        """Returns the routes known to the last server that answered; the rest are missing.

        All requests leave in one write.
        """
        found: dict[str, TopicRouteData] = {}
        try:
            calls = self._caller.ask_all(
                self._peers[self._current], [_route(topic) for topic in topics]
            )
        except ConnectionFailedError:
            return found
        for topic, call in zip(topics, calls, strict=True):
            with contextlib.suppress(ConnectionFailedError, BrokerError):
                found[topic] = call.answer()
        return found

    def topics(self) -> tuple[str, ...]:
        """Returns every topic, including RocketMQ's own.

        Raises ConnectionFailedError, BrokerError.
        """
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return self._ask(_json(code, TopicList)).topic_list

    def cluster_info(self) -> ClusterInfo:
        """Returns every broker, and its addresses. Raises ConnectionFailedError, BrokerError."""
        return self._ask(_json(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo))

    def _ask(self, request: Request[T]) -> T:
        failures: list[ConnectionFailedError | BrokerError] = []
        for number in self._order():
            try:
                answer = self._caller.ask(self._peers[number], request).answer()
            except ConnectionFailedError as error:
                failures.append(error)
            except BrokerError as error:
                if error.response_code not in _ASK_NEXT:
                    raise
                if error.response_code == ResponseCode.SYSTEM_ERROR:
                    error = BrokerBusyError(str(error), response_code=error.response_code)
                failures.append(error)
            else:
                self._current = number
                return answer
        raise _together(failures)

    def _order(self) -> list[int]:
        numbers = range(len(self._peers))
        return [*numbers[self._current :], *numbers[: self._current]]


def _route(topic: str) -> Request[TopicRouteData]:
    return Request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        _read_route,
        GetRouteInfoRequest(topic, is_standard_json_only=True),
        body_bytes_max=JSON_BODY_BYTES_MAX,
    )


def _read_route(peer: Peer, answer: RemotingCommand) -> TopicRouteData:
    """Returns a route without the fields that no caller reads, which would only fill memory."""
    route = body_of(peer, answer, TopicRouteData)
    return replace(route, filter_server_table={}, topic_queue_mapping_by_broker=None)


def _json(code: RequestCode, kind: type[BodyT]) -> Request[BodyT]:
    return Request(code, json_reader(kind), body_bytes_max=JSON_BODY_BYTES_MAX)


def _together(failures: list[ConnectionFailedError | BrokerError]) -> Exception:
    """Returns one error for all failures; an answered refusal counts before a missing answer."""
    for kind in (TopicNotExistError, BrokerError):
        for failure in failures:
            if isinstance(failure, kind):
                return failure
    if len(failures) == 1:
        return failures[0]
    are_lasting = all(
        isinstance(failure, ConnectionFailedError) and failure.is_lasting for failure in failures
    )
    prefix = f"{ConnectionFailedError.code}: "
    texts = (str(failure).removeprefix(prefix) for failure in failures)
    return ConnectionFailedError("; ".join(texts), is_lasting=are_lasting)

"""Answers of servers as values or declared errors.

Each error names the server.

Source: docs/design/remoting.md section 2.5, docs/design/cluster.md sections 2.4 and 2.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    TopicNotExistError,
)
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from rocketpy_proto.remoting import (
    EXCHANGES,
    Body,
    Header,
    RemotingCommand,
    RemotingFormatError,
    RequestCode,
    ResponseCode,
    decode_body,
)

HeaderT = TypeVar("HeaderT", bound=Header)
BodyT = TypeVar("BodyT", bound=Body)

# Refusals that may pass: of an overloaded broker, one that starts or stops, or a slave that does
# not serve.
BUSY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
# A broker answers with these codes if it does not have the queue, or no longer.
WRONG_ROUTE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    }
)
# Codes for a queue id that the topic does not have; 4.9 answers with a system error.
_QUEUE_CODES = frozenset({ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR})
_QUEUE_REMARK = "queueId["
# A slave answers so for its topics and groups for a moment, once a minute.
_RETRIABLE_AT_SLAVES = frozenset({ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})
# Remarks of system errors by which brokers of 4.x and 5.x report that they are busy.
_BUSY_REMARKS = ("system busy", "flow control", "[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]")
_NAMES = {code.value: code.name for code in ResponseCode}
# Characters shown of a remark, which may be as long as a header.
_REMARK_CHARACTERS_MAX = 500
_ACL_1_REMARK = "AclException"


def refusal(peer: Peer, answer: RemotingCommand) -> BrokerError:
    """Returns the error for an answer that is no success."""
    remark = (answer.remark or "gives no reason").strip()[:_REMARK_CHARACTERS_MAX]
    name = _NAMES.get(answer.code, "unknown")
    text = f"{peer}: {remark} (response code {answer.code}, {name})"
    if answer.code == ResponseCode.NO_PERMISSION or _ACL_1_REMARK in remark:
        text += "; check options accessKey and secretKey, and the permissions of this user"
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return TopicNotExistError(text, response_code=answer.code)
    kind = BrokerBusyError if _is_busy(answer.code, remark) else BrokerError
    return kind(text, response_code=answer.code)


def _is_busy(code: int, remark: str) -> bool:
    """True if the same request may succeed later."""
    is_busy = code == ResponseCode.SYSTEM_ERROR and any(text in remark for text in _BUSY_REMARKS)
    return is_busy or code in BUSY_CODES


def is_retriable(error: ConnectionFailedError | BrokerError, *, is_slave: bool = False) -> bool:
    """True if the request may be repeated.

    An unknown topic may pass, too: its only broker may be away. Name servers and slaves may
    forget a topic for a moment.
    """
    if isinstance(error, ConnectionFailedError):
        return not error.is_lasting
    if isinstance(error, BrokerBusyError | TopicNotExistError):
        return True
    return is_slave and error.response_code in _RETRIABLE_AT_SLAVES


def is_hidden_queue(error: ConnectionFailedError | BrokerError) -> bool:
    """True if a broker answers that its topic has fewer queues for reading."""
    is_code = isinstance(error, BrokerError) and error.response_code in _QUEUE_CODES
    return is_code and _QUEUE_REMARK in str(error)


def with_advice(
    error: ConnectionFailedError | BrokerError, *, is_sql: bool
) -> ConnectionFailedError | BrokerError:
    """Returns the error, with advice if there is any."""
    if is_sql and isinstance(error, BrokerError) and "SQL92" in str(error):
        return BrokerError(
            f"{error}; option filter needs enablePropertyFilter=true in the configuration of "
            "every broker that is read; otherwise filter by tags, or in Spark",
            response_code=error.response_code,
        )
    return error


def is_refused(error: ConnectionFailedError | BrokerError) -> bool:
    """True if a broker has answered that it did not store the messages.

    A system error may occur after the messages are stored.
    """
    if isinstance(error, ConnectionFailedError):
        return False
    return error.response_code != ResponseCode.SYSTEM_ERROR


def header_of(
    peer: Peer, code: RequestCode, answer: RemotingCommand, kind: type[HeaderT]
) -> HeaderT:
    """Returns the header of an answer to a request with this code. Raises ConnectionFailedError."""
    try:
        header = EXCHANGES[code].response.decode(answer.ext_fields)
    except RemotingFormatError as error:
        raise _misread(peer, error) from error
    assert isinstance(header, kind), (code, kind)
    return header


def body_of(peer: Peer, answer: RemotingCommand, kind: type[BodyT]) -> BodyT:
    """Returns the body of an answer. Raises ConnectionFailedError."""
    try:
        return decode_body(kind, answer.body)
    except RemotingFormatError as error:
        raise _misread(peer, error) from error


def json_reader(kind: type[BodyT]) -> Callable[[Peer, RemotingCommand], BodyT]:
    """Returns a reader of answers that have a body of this type."""
    return lambda peer, answer: body_of(peer, answer, kind)


def nothing(_peer: Peer, _answer: RemotingCommand) -> None:
    """Reads nothing: the response code is the whole answer."""


def _misread(peer: Peer, error: RemotingFormatError) -> ConnectionFailedError:
    problem = f"does not answer in RocketMQ's protocol ({str(error)[:_REMARK_CHARACTERS_MAX]})"
    return peer.failed(problem, is_lasting=True)

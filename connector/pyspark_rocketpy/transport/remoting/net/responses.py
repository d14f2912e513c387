"""Answers as values: the error for each response code, headers and bodies.

Any answer of a server gives a value or a declared error that names the server.
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
# Remarks of system errors by which brokers of 4.x and 5.x report that they are busy.
_BUSY_REMARKS = ("system busy", "flow control", "[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]")
_NAMES = {code.value: code.name for code in ResponseCode}
# Characters shown of a remark, which may be as long as a header.
_REMARK_CHARACTERS_MAX = 500
_ACL_1_REMARK = "AclException"


def refusal(peer: Peer, answer: RemotingCommand) -> BrokerError:
    """Returns the error for an answer that is no success."""
    remark = (answer.remark or "says no more").strip()[:_REMARK_CHARACTERS_MAX]
    name = _NAMES.get(answer.code, "unknown")
    text = f"{peer}: {remark} (response code {answer.code}, {name})"
    if answer.code == ResponseCode.NO_PERMISSION or _ACL_1_REMARK in remark:
        text += "; see options accessKey and secretKey, and what this user may do"
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return TopicNotExistError(text, response_code=answer.code)
    kind = BrokerBusyError if _is_busy(answer.code, remark) else BrokerError
    return kind(text, response_code=answer.code)


def _is_busy(code: int, remark: str) -> bool:
    """True if the same request may succeed later."""
    is_told = code == ResponseCode.SYSTEM_ERROR and any(told in remark for told in _BUSY_REMARKS)
    return is_told or code in BUSY_CODES


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
    """Returns a reader of answers with such a body."""
    return lambda peer, answer: body_of(peer, answer, kind)


def _misread(peer: Peer, error: RemotingFormatError) -> ConnectionFailedError:
    problem = f"does not answer as RocketMQ does ({str(error)[:_REMARK_CHARACTERS_MAX]})"
    return peer.failed(problem, is_lasting=True)

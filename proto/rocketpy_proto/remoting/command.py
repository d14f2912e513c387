"""A request or an answer, as a value. Source: docs/design/remoting.md section 1. Holds no state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from rocketpy_proto.model.codes import Language

RESPONSE_FLAG = 1
ONE_WAY_FLAG = 2
# The number of 5.3.0. From 401 on a name server answers routes in standard JSON; who says more than
# 475 may be told to GO_AWAY (docs/design/remoting.md 6.4).
PROTOCOL_VERSION = 473


class Serialization(IntEnum):
    """The form of a header: the byte in front of its length."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct, frozen=True):
    """One frame.

    `code` is a request's RequestCode or an answer's ResponseCode; `opaque` ties an answer to its
    request. `body` of a received command is a view of the bytes that were fed, read-only.
    """

    code: int
    opaque: int
    flag: int = 0
    language: Language = Language.PYTHON
    version: int = PROTOCOL_VERSION
    remark: str | None = None
    ext_fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | memoryview = b""
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """True if this answers a request; asked before `opaque` is looked up."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        """True if nobody waits for an answer."""
        return bool(self.flag & ONE_WAY_FLAG)

    def answer(
        self,
        code: int,
        *,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> RemotingCommand:
        """Returns the answer to this request, with a header of the same form."""
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields=ext_fields or {},
            body=body,
            serialization=self.serialization,
        )

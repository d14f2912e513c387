"""Requests and answers as values. Source: docs/design/remoting.md section 1."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from rocketpy_proto.model.codes import Language

RESPONSE_FLAG = 1
ONE_WAY_FLAG = 2
# The number of 5.3.0. From 401 on a name server answers routes in standard JSON. A peer above 475
# may receive GO_AWAY (docs/design/remoting.md section 6.4).
PROTOCOL_VERSION = 473


class Serialization(IntEnum):
    """Forms of a header: the byte before its length."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct, frozen=True):
    """One frame.

    `code` is a request's RequestCode or an answer's ResponseCode. `opaque` matches an answer to its
    request. `body` of a received command is a read-only view of the received bytes.
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
        """True if this answers a request. Both sides count `opaque`, so check this first."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        """True if the sender expects no answer."""
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

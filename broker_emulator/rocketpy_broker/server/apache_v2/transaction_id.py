"""The transaction id that a producer gets for a half message.

Clients return it as it is. It is `<message id>-<log offset>-<queue offset>`, with offsets in hex
digits. It has the position of the half message, so the broker can end the transaction also after a
restart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2

_FORM = re.compile(r"(.+)-([0-9A-F]{1,15})-([0-9A-F]{1,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TransactionId:
    """A message id, and the offsets of its half message in the log and in its queue."""

    message_id: str
    commit_log_offset: int
    queue_offset: int

    def encode(self) -> str:
        """Returns the text for clients."""
        return f"{self.message_id}-{self.commit_log_offset:X}-{self.queue_offset:X}"

    @classmethod
    def decode(cls, text: str) -> TransactionId:
        """Returns the parts of a text. Raises StatusError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise StatusError(
                v2.INVALID_TRANSACTION_ID,
                f"transaction id {text!r:.200} is not in this broker's form; send the id that the "
                "broker returned for the message",
            )
        return cls(found[1], int(found[2], 16), int(found[3], 16))

"""Handle that recalls a message before its delivery time.

URL-safe Base64 of `v1 TOPIC BROKER TIME KEY`, separated by blanks. TIME, in ms, is the first
millisecond after the last full second before the delivery time. KEY is the unique key. Any sender
can build a handle. Source: docs/design/broker_behaviour.md section 1.7.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

VERSION = "v1"
SECOND_MS = 1_000
_PARTS = 5
# Names of a topic and a broker, and a unique key, are much shorter.
_HANDLE_CHARACTERS_MAX = 4_096
_DIGITS_MAX = 15


class MalformedHandleError(Exception):
    """A text that is no recall handle."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """The parts of a recall handle."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str

    @classmethod
    def of_message(
        cls, topic: str, broker_name: str, deliver_ms: int, unique_key: str
    ) -> RecallHandle:
        """Returns the handle of a message that was sent with TIMER_DELIVER_MS."""
        return cls(topic, broker_name, (deliver_ms - 1) // SECOND_MS * SECOND_MS + 1, unique_key)

    def encode(self) -> str:
        """Returns the text that senders keep."""
        text = f"{VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode("ascii")

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """Returns the handle's parts. Raises MalformedHandleError."""
        if len(handle) > _HANDLE_CHARACTERS_MAX:
            raise MalformedHandleError(
                f"the recall handle has {len(handle)} characters, limit {_HANDLE_CHARACTERS_MAX}"
            )
        try:
            padded = handle.rstrip("=") + "=" * (-len(handle.rstrip("=")) % 4)
            text = base64.b64decode(padded.encode("ascii"), b"-_", validate=True).decode()
        except (binascii.Error, UnicodeError) as error:
            raise MalformedHandleError(f"the recall handle is not Base64: {error}") from error
        parts = text.split(" ")
        if len(parts) != _PARTS or parts[0] != VERSION or not all(parts):
            raise MalformedHandleError(
                f"the recall handle holds {text!r}, not 'v1 TOPIC BROKER TIME KEY'"
            )
        _, topic, broker_name, time, unique_key = parts
        if not (time.isascii() and time.isdigit() and len(time) <= _DIGITS_MAX):
            raise MalformedHandleError(
                f"the time of the recall handle is {time!r}, not a number of up to "
                f"{_DIGITS_MAX} digits"
            )
        return cls(topic, broker_name, int(time), unique_key)

"""Errors of the remoting codec.

RemotingError                     reason
├── RemotingFormatError           a peer's bytes or texts break the protocol: what
└── UnencodableRemotingError      a value that no frame can hold: what
"""

from __future__ import annotations


class RemotingError(ValueError):
    """Base of the codec's errors: `what` was wrong, and the `reason`."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.reason)


class RemotingFormatError(RemotingError):
    """Bytes of a peer that are no frame, header or body; the connection is unusable."""


class UnencodableRemotingError(RemotingError):
    """A value of this side that does not fit; nothing was encoded."""

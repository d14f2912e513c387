"""Errors of the remoting codec. Holds no state.

RemotingError                     reason
├── RemotingFormatError           bytes or texts of a peer that break the protocol: what
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
    """What a peer sent is no frame, header or body. The connection cannot be trusted further."""


class UnencodableRemotingError(RemotingError):
    """A value of our own that does not fit; nothing was encoded."""

"""Errors of a slave that cannot follow its master; it tries again."""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError


class MasterLostError(BrokerError):
    """The master cannot be found or reached, or its connection has ended."""


class MasterRefusedError(BrokerError):
    """A master whose store this slave cannot copy; an operator has to act."""


class MasterFailedError(MasterRefusedError):
    """A master that fails at a request, as one of RocketMQ 4.9 does in its first second."""

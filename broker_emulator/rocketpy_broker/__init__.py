"""rocketpy_broker: a RocketMQ-compatible broker to embed. `LocalBroker` is the way in.

Holds no state; see `message_store` for what a crash does to a broker's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpy_broker.local import LocalBroker

__all__ = ["LocalBroker"]


def __getattr__(name: str) -> object:
    """Import `LocalBroker` when it is first asked for, so that the pytest plugin stays light."""
    if name == "LocalBroker":
        from rocketpy_broker.local import LocalBroker

        return LocalBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

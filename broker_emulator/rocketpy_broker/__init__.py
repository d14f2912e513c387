"""An embeddable broker with RocketMQ's files; `LocalBroker` is its entry point.

`message_store` describes what a crash does to a broker's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpy_broker.client.messages.model import Message
    from rocketpy_broker.embedded.local_broker import BrokerUser, LocalBroker
    from rocketpy_broker.embedded.process import LocalBrokerError, LocalTls

__all__ = ["BrokerUser", "LocalBroker", "LocalBrokerError", "LocalTls", "Message"]


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that the pytest plugin loads fast."""
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the module {error.name!r} is missing; "
            "install the broker with: pip install 'pyspark-rocketpy[broker]'",
            name=error.name,
        ) from None


def _imported(name: str) -> object:
    if name == "LocalBroker":
        from rocketpy_broker.embedded.local_broker import LocalBroker

        return LocalBroker
    if name == "BrokerUser":
        from rocketpy_broker.embedded.local_broker import BrokerUser

        return BrokerUser
    if name == "LocalBrokerError":
        from rocketpy_broker.embedded.process import LocalBrokerError

        return LocalBrokerError
    if name == "LocalTls":
        from rocketpy_broker.embedded.process import LocalTls

        return LocalTls
    if name == "Message":
        from rocketpy_broker.client.messages.model import Message

        return Message
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""An embeddable broker with RocketMQ's files.

`LocalBroker` starts one, and `connect` calls a running one. `message_store` describes what a crash
does to a broker's directory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpy_broker.client.broker_client import BrokerClient, connect
    from rocketpy_broker.embedded.broker_container import BrokerContainer
    from rocketpy_broker.embedded.local_broker import BrokerUser, LocalBroker
    from rocketpy_broker.embedded.process import LocalBrokerError, LocalTls
    from rocketpy_broker.messages.stored import Message

__all__ = [
    "BrokerClient",
    "BrokerContainer",
    "BrokerUser",
    "LocalBroker",
    "LocalBrokerError",
    "LocalTls",
    "Message",
    "connect",
]


_MODULES = {
    "BrokerClient": "rocketpy_broker.client.broker_client",
    "BrokerContainer": "rocketpy_broker.embedded.broker_container",
    "BrokerUser": "rocketpy_broker.embedded.local_broker",
    "LocalBroker": "rocketpy_broker.embedded.local_broker",
    "LocalBrokerError": "rocketpy_broker.embedded.process",
    "LocalTls": "rocketpy_broker.embedded.process",
    "Message": "rocketpy_broker.messages.stored",
    "connect": "rocketpy_broker.client.broker_client",
}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that the pytest plugin loads fast."""
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    except ModuleNotFoundError as error:
        extras = "broker,testcontainers" if name == "BrokerContainer" else "broker"
        raise ModuleNotFoundError(
            f"the module {error.name!r} is missing; "
            f"install the broker with: pip install 'pyspark-rocketpy[{extras}]'",
            name=error.name,
        ) from None

"""The present configuration of a running broker, and its changes.

Changes are in memory only: a restarted broker has the options of its command again.
Source: AdminBrokerProcessor#updateBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.config_files.data_version import FileVersion
from rocketpy_broker.services.settings.broker_properties import PROPERTIES
from rocketpy_proto.model.codes import ResponseCode


class PropertyError(BrokerError):
    """A change of a property that the broker refuses; nothing was changed."""

    code = ResponseCode.INVALID_PARAMETER


class BrokerSettings:
    """The configuration that operators see and change; listeners of `changed` apply it."""

    def __init__(
        self, config: BrokerConfig, changed: Listeners[[BrokerConfig]], clock: Clock
    ) -> None:
        self.config = config
        # Called with the new configuration after each change.
        self.changed = changed
        self._clock = clock
        self.version = FileVersion()

    def listens(self, remoting_port: int | None, ha_port: int | None) -> None:
        """Notes the ports opened for RocketMQ's clients and slaves, in place of the options'."""
        replication = replace(self.config.replication, port=ha_port)
        self.config = replace(self.config, remoting_port=remoting_port, replication=replication)

    def properties(self) -> dict[str, str]:
        """Returns all properties by RocketMQ's names."""
        return {name: each.text(self.config) for name, each in PROPERTIES.items()}

    def change(self, properties: Mapping[str, str]) -> None:
        """Changes all these properties or none; an unchanged value is accepted for any name.

        Raises PropertyError.
        """
        config = self.config
        for name, text in properties.items():
            config = _changed(config, name, text.strip())
        if config != self.config:
            self.config = config
            self.version = self.version.next(self._clock.now_ms())
            self.changed(config)


def _changed(config: BrokerConfig, name: str, text: str) -> BrokerConfig:
    found = PROPERTIES.get(name)
    if found is None:
        raise PropertyError(f"the broker has no property {name!r:.100}; getBrokerConfig lists all")
    if text == found.text(config):
        return config
    if found.change is None:
        raise PropertyError(
            f"{name} is {found.text(config)!r:.200} and cannot change while the broker runs. "
            "Restart the broker with another value"
        )
    try:
        return found.change(config, found.parse(text))
    except ValueError as error:
        raise PropertyError(f"{name} is {text!r:.100}, accepted is {error}") from error

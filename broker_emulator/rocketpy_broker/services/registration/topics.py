"""The broker's topics as name servers get them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model.configs import DataVersion, Perm, TopicConfig
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable


class RegisteredTopics:
    """All topics of the broker, with the permissions that the broker itself allows."""

    def __init__(self, topics: TopicConfigManager, broker_permission: int) -> None:
        self._topics = topics
        self._broker_permission = broker_permission
        # Called with the names of topics after each change of their registered values.
        self.changed = Listeners[[Collection[str]]]()
        topics.changed.add(self.changed)

    def configure(self, config: BrokerConfig) -> None:
        """Takes in a changed configuration: the broker's permission is a part of each topic's."""
        if config.broker_permission != self._broker_permission:
            self._broker_permission = config.broker_permission
            # Name servers take in topics only if the version has changed.
            self._topics.next_version()
            self.changed(self.present().keys())

    @property
    def version(self) -> DataVersion:
        """The version of the broker's table."""
        return self._topics.version

    def present(self) -> Mapping[str, TopicConfig]:
        """Returns all topics by name; later changes are not in them."""
        return {name: each.config for name, each in self._topics.copy().items()}

    def found(self, names: Collection[str]) -> list[TopicConfig]:
        """Returns the named topics; missing ones are left out."""
        return [each for name in names if (each := self._topics.find(name)) is not None]

    def table(self, names: Collection[str]) -> TopicConfigTable:
        """Returns the named topics; missing ones are left out."""
        configs = {each.topic: self.registered(each) for each in self.found(names)}
        return TopicConfigTable(configs, self.version)

    def registered(self, config: TopicConfig) -> TopicConfig:
        """Returns a topic's configuration in the form of registrations."""
        perm = config.perm & (self._broker_permission | Perm.INHERIT)
        return structs.replace(config, perm=perm)

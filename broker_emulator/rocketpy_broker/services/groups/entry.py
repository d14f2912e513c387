"""Entry of a consumer group in `config/subscriptionGroup.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketpy_broker.services.config_files.json_fields import JsonFields
from rocketpy_proto.model.configs import SubscriptionGroupConfig

_FIELDS = JsonFields(SubscriptionGroupConfig)


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group; `extra` holds the fields of the file unknown to this broker."""

    config: SubscriptionGroupConfig
    extra: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Returns the entry of subscriptionGroup.json."""
        return _FIELDS.encode(self.config, self.extra)

    @classmethod
    def from_json(cls, group: str, entry: object) -> GroupEntry:
        """Returns the group of an entry of subscriptionGroup.json. Raises ValueError."""
        return cls(*_FIELDS.decode(entry, group))

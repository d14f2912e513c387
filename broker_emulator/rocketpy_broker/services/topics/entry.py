"""Entry of a topic in `config/topics.json`.

The epoch (see `epochs`) is stored only there, as an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from rocketpy_broker.services.config_files.json_fields import JsonFields, as_long
from rocketpy_proto.model.configs import TopicConfig

EPOCH = "rocketpy.epoch"
_FIELDS = JsonFields(TopicConfig)


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic; `extra` holds the fields of the file unknown to this broker. Epoch 0: unknown."""

    config: TopicConfig
    extra: Mapping[str, object] = field(default_factory=dict)
    epoch: int = 0

    def changed(self, **values: Any) -> TopicEntry:
        """Returns the entry with other values of the topic."""
        return replace(self, config=structs.replace(self.config, **values))

    def to_json(self) -> dict[str, object]:
        """Returns the entry of topics.json."""
        entry = _FIELDS.encode(self.config, self.extra)
        if self.epoch:
            entry["attributes"] = {**self.config.attributes, EPOCH: str(self.epoch)}
        return entry

    @classmethod
    def from_json(cls, topic: str, entry: object) -> TopicEntry:
        """Returns the topic of an entry of topics.json. Raises ValueError.

        Missing fields get RocketMQ's defaults.
        """
        config, extra = _FIELDS.decode(entry, topic)
        attributes = dict(config.attributes)
        epoch = as_long(attributes.pop(EPOCH, 0))
        return cls(structs.replace(config, attributes=attributes), extra, epoch)

"""The consumer groups of this broker: `config/subscriptionGroup.json`.

A change that somebody asks for is on disk before it is answered. A group that comes to be by its
first use is saved at once too, but a full disk does not keep it from consuming: the table is then
saved with the next schedule, and a crash before costs nothing but the group's defaults.
Rows B01, C01 and G01 (the group's configuration).
Source: SubscriptionGroupManager, spec/storage.md sections 11.4 and 12.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketpy_broker.clock import Clock
from rocketpy_broker.errors import (
    ParameterIllegalError,
    PermissionDeniedError,
    SubscriptionGroupNotExistError,
)
from rocketpy_broker.services.config_file import ConfigFile
from rocketpy_broker.services.data_version import DataVersion
from rocketpy_broker.services.json_fields import as_object
from rocketpy_broker.services.subscription_group_config import SubscriptionGroupConfig

logger = logging.getLogger(__name__)
GROUP_BYTES_MAX = 120
GROUP_PATTERN = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{GROUP_BYTES_MAX}}}")
# Every broker has these, from its start on.
PREDEFINED = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
DATA_VERSION = "dataVersion"
TABLE = "subscriptionGroupTable"
FORBIDDEN = "forbiddenTable"


def check_group(group: str) -> None:
    """Raises ParameterIllegalError for a name that no consumer group may have."""
    if not GROUP_PATTERN.fullmatch(group):
        accepted = f"1 to {GROUP_BYTES_MAX} of the characters a-z A-Z 0-9 _ - % |"
        raise ParameterIllegalError("consumer_group", group, accepted)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What subscriptionGroup.json holds."""

    version: DataVersion
    groups: dict[str, SubscriptionGroupConfig]
    forbidden: Mapping[str, object]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> _Loaded:
        table = as_object(content.get(TABLE))
        return cls(
            DataVersion.from_json(content.get(DATA_VERSION)),
            {group: SubscriptionGroupConfig.from_json(group, table[group]) for group in table},
            as_object(content.get(FORBIDDEN)),
        )


class SubscriptionGroupManager:
    """The table of groups. The forbidden table (group -> topic -> bits) is kept as it is."""

    def __init__(
        self, folder: Path, clock: Clock, *, auto_create_subscription_group: bool = True
    ) -> None:
        self._file = ConfigFile(folder / "subscriptionGroup.json", (DATA_VERSION, TABLE, FORBIDDEN))
        self._clock = clock
        self._auto_create = auto_create_subscription_group
        self._groups = {group: SubscriptionGroupConfig(group) for group in PREDEFINED}
        self._forbidden: Mapping[str, object] = {}
        self._version = DataVersion()
        self._changed = False

    def load(self) -> None:
        """Read the file, if there is one. Raises ConfigFileError."""
        loaded = self._file.load(_Loaded.from_json)
        if loaded is not None:
            self._groups |= loaded.groups
            self._forbidden, self._version = loaded.forbidden, loaded.version

    def get(self, group: str) -> SubscriptionGroupConfig:
        """The group's configuration. Raises SubscriptionGroupNotExistError."""
        found = self._groups.get(group)
        if found is None:
            raise SubscriptionGroupNotExistError(group)
        return found

    def get_or_create(self, group: str) -> SubscriptionGroupConfig:
        """The group's configuration, made with defaults at its first use if that is allowed.

        Raises SubscriptionGroupNotExistError, ParameterIllegalError.
        """
        if group in self._groups or not self._auto_create:
            return self.get(group)
        check_group(group)
        created = self._groups[group] = SubscriptionGroupConfig(group)
        self._version = self._version.next(self._clock.now_ms())
        self._changed = True
        try:
            self.persist()
        except OSError as error:
            logger.warning("group %s could not be saved yet: %s", group, error)
        return created

    def list(self) -> list[SubscriptionGroupConfig]:
        """All groups by name."""
        return [self._groups[name] for name in sorted(self._groups)]

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a group. Raises ParameterIllegalError, OSError; then nothing changed."""
        check_group(config.group)
        if config.retry_queue_nums < 0:
            raise ParameterIllegalError("retry_queue_nums", config.retry_queue_nums, "0 or more")
        old = self._groups.get(config.group)
        if old is not None:
            config = replace(config, extra={**old.extra, **config.extra})
        self._replace({**self._groups, config.group: config}, self._forbidden)

    def delete(self, group: str) -> None:
        """Remove a group. Its progress is the consumer offsets' business.

        Raises SubscriptionGroupNotExistError, PermissionDeniedError, OSError.
        """
        self.get(group)
        if group in PREDEFINED:
            raise PermissionDeniedError(f"group {group!r} is the broker's own and stays")
        self._replace(
            {name: config for name, config in self._groups.items() if name != group},
            {name: topics for name, topics in self._forbidden.items() if name != group},
        )

    def _replace(
        self, groups: dict[str, SubscriptionGroupConfig], forbidden: Mapping[str, object]
    ) -> None:
        version = self._version.next(self._clock.now_ms())
        self._save(groups, forbidden, version)
        self._groups, self._forbidden, self._version = groups, forbidden, version

    def persist(self) -> None:
        """Save what could not be saved before. Raises OSError; then it is tried again later."""
        if self._changed:
            self._save(self._groups, self._forbidden, self._version)

    def _save(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, object],
        version: DataVersion,
    ) -> None:
        table = {group: groups[group].to_json() for group in groups}
        self._file.save({DATA_VERSION: version.to_json(), TABLE: table, FORBIDDEN: forbidden})
        self._changed = False

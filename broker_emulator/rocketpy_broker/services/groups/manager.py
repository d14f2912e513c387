"""Consumer groups of this broker: `config/subscriptionGroup.json`.

A requested change is on disk before it takes effect and before the broker answers. A group created
by its first use takes effect at once, and is saved before the broker answers that use. A full disk
does not prevent consumption: the next scheduled save writes the table. A crash before that save
loses only a group with default values.
Source: SubscriptionGroupManager, docs/design/storage.md sections 11.4 and 12.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import (
    ClientsFullError,
    ParameterIllegalError,
    PermissionDeniedError,
    SubscriptionGroupNotExistError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.config_files.table import ConfigTable
from rocketpy_broker.services.groups.changes import GroupChange, GroupExistsError
from rocketpy_broker.services.groups.entry import GroupEntry
from rocketpy_broker.services.topics.manager import TOPIC_BYTES_MAX, TOPIC_PATTERN
from rocketpy_proto.model import SYSTEM_GROUP_PREFIX, TRANSACTION_GROUP
from rocketpy_proto.model.configs import DataVersion, SubscriptionGroupConfig

logger = logging.getLogger(__name__)
GROUP_BYTES_MAX = 120
GROUP_PATTERN = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{GROUP_BYTES_MAX}}}")
# Every broker has these groups from its start.
PREDEFINED = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
TABLE = "subscriptionGroupTable"
FORBIDDEN = "forbiddenTable"
# The bit of `FORBIDDEN` that denies reading.
FORBIDDEN_READ = 4


def is_system_group(group: str) -> bool:
    """True if a consumer group is one of RocketMQ's own."""
    return group in PREDEFINED or group.startswith(SYSTEM_GROUP_PREFIX)


def check_not_own(group: str) -> None:
    """Raises PermissionDeniedError for a group of the broker itself."""
    if group.startswith(SYSTEM_GROUP_PREFIX):
        raise PermissionDeniedError(f"the progress of group {group!r} is the broker's own")


def _new(group: str) -> GroupEntry:
    return GroupEntry(SubscriptionGroupConfig(group))


def check_group(group: str, name: str = "consumer_group") -> None:
    """Raises ParameterIllegalError for an illegal group name; `name` is the parameter's name."""
    if not GROUP_PATTERN.fullmatch(group):
        accepted = f"1 to {GROUP_BYTES_MAX} of the characters a-z A-Z 0-9 _ - % |"
        raise ParameterIllegalError(name, group[: GROUP_BYTES_MAX + 1], accepted)


def check_producer_group(group: str) -> None:
    """Raises ParameterIllegalError for an illegal name; the name of every topic is legal."""
    if len(group) > TOPIC_BYTES_MAX or not TOPIC_PATTERN.fullmatch(group):
        accepted = f"1 to {TOPIC_BYTES_MAX} of the characters a-z A-Z 0-9 _ - % |"
        raise ParameterIllegalError("producer_group", group[: TOPIC_BYTES_MAX + 1], accepted)


class SubscriptionGroupManager:
    """The table of groups, and the read-only forbidden table (group -> topic -> bits)."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        auto_create_subscription_group: bool = True,
        groups_max: int = ClientLimits().groups_max,
    ) -> None:
        path = folder / "subscriptionGroup.json"
        self.auto_create_subscription_group = auto_create_subscription_group
        self._groups_max = groups_max
        self._log_throttle = LogThrottle(clock)
        self._table = ConfigTable(path, clock, TABLE, GroupEntry.to_json, (FORBIDDEN,))
        self._table.on_change = self._on_change
        self._table.others_of = self._others_of
        self._entries = self._table.entries
        self._table.take_in({name: _new(name) for name in PREDEFINED})
        self._forbidden: Mapping[str, object] = {}
        self._forbidden_next: Mapping[str, object] = {}
        # Called after the deletion of a group.
        self.deleted: list[Callable[[str], Awaitable[None]]] = []

    @property
    def saver(self) -> Saver:
        """The saver of the table's changes."""
        return self._table.saver

    def load(self) -> None:
        """Reads the file if it exists. Raises ConfigFileError."""
        self._table.load(GroupEntry.from_json, self._take_forbidden)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, group: str) -> bool:
        return group in self._entries

    def get(self, group: str) -> SubscriptionGroupConfig:
        """Returns the group's configuration. Raises SubscriptionGroupNotExistError."""
        found = self.find(group)
        if found is None:
            raise SubscriptionGroupNotExistError(group)
        return found

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Returns the group's configuration, or None."""
        found = self._entries.get(group)
        return None if found is None else found.config

    @property
    def version(self) -> DataVersion:
        """The version of the table."""
        return self._table.version.value

    def forbidden(self) -> dict[str, dict[str, int]]:
        """Returns the forbidden operations as bits, by group and topic."""
        return {
            group: {topic: bits for topic, bits in topics.items() if isinstance(bits, int)}
            for group, topics in self._forbidden.items()
            if isinstance(topics, Mapping)
        }

    def copy(self) -> dict[str, GroupEntry]:
        """Returns all groups by name, as they are now."""
        return dict(self._entries)

    def configs(self, names: Iterable[str]) -> Iterator[SubscriptionGroupConfig]:
        """Yields the configurations of these groups as they were at the call."""
        entries = self.copy()
        return (entries[name].config for name in names)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """True if the group is not allowed to read the topic."""
        topics = self._forbidden.get(group)
        bits = topics.get(topic) if isinstance(topics, Mapping) else None
        return isinstance(bits, int) and bool(bits & FORBIDDEN_READ)

    def check_available(self, group: str) -> None:
        """Raises the errors of `get_or_create`, but creates no group."""
        if group in self._entries or not self.auto_create_subscription_group:
            self.get(group)
            return
        check_group(group)
        if len(self._entries) >= self._groups_max:
            way_out = "delete groups that are not needed"
            raise ClientsFullError("the number of consumer groups", self._groups_max, way_out)

    def get_or_create(self, group: str) -> SubscriptionGroupConfig:
        """Returns the group's configuration; creates it with default values if that is enabled.

        `save_new` saves it. Raises SubscriptionGroupNotExistError, ParameterIllegalError,
        ClientsFullError.
        """
        self.check_available(group)
        if group in self._entries:
            return self.get(group)
        created = _new(group)
        self._table.note({group: created})
        return created.config

    async def save_new(self) -> None:
        """Saves groups created by their first use; a full disk postpones the save."""
        try:
            await self.saver.save()
        except OSError as error:
            if self._log_throttle.may_log():
                logger.warning("new groups could not be saved yet: %s", error)

    def names(self) -> Collection[str]:
        """Returns the names of all groups."""
        return self._entries.keys()

    def list(self) -> list[SubscriptionGroupConfig]:
        """Returns all groups, sorted by name."""
        return [*self.configs(sorted(self._entries))]

    async def update(self, config: SubscriptionGroupConfig) -> None:
        """Creates or replaces a group; durable on return.

        Raises ParameterIllegalError, OSError; then nothing has changed.
        """
        check_group(config.group)
        if config.retry_queue_nums < 0:
            raise ParameterIllegalError("retry_queue_nums", config.retry_queue_nums, "0 or more")

        def changed(old: GroupEntry | None) -> GroupEntry:
            return replace(old or _new(config.group), config=config)

        await self._table.change(config.group, changed)

    async def alter(self, change: GroupChange, *, create_only: bool) -> None:
        """Creates or changes a group; durable on return. Fields not in the change stay.

        Raises ParameterIllegalError, GroupExistsError, OSError; then nothing has changed.
        """
        check_group(change.group)
        change.check()

        def changed(old: GroupEntry | None) -> GroupEntry:
            if old is not None and create_only:
                raise GroupExistsError(change.group)
            entry = old or _new(change.group)
            return replace(entry, config=change.of(entry.config))

        await self._table.change(change.group, changed)

    async def delete(self, group: str) -> None:
        """Removes a group; durable on return. The listeners of `deleted` handle its offsets.

        Raises SubscriptionGroupNotExistError, PermissionDeniedError, OSError.
        """
        self.get(group)
        if group in PREDEFINED:
            raise PermissionDeniedError(
                f"group {group!r} is the broker's own and cannot be deleted"
            )
        await self._table.change(group, lambda _old: None)
        for listener in self.deleted:
            await listener(group)

    async def replicate(
        self,
        changes: Mapping[str, GroupEntry | None],
        forbidden: Mapping[str, object],
    ) -> None:
        """Replaces groups with the master's; None removes a group. Durable on return.

        Raises OSError; then no group has changed.
        """
        if forbidden != self._forbidden:
            self._forbidden = forbidden
            self._table.note({})
        await self._table.set_all(changes)

    def _take_forbidden(self, content: Mapping[str, Any]) -> None:
        self._forbidden = as_object(content.get(FORBIDDEN))

    def _others_of(self, gone: Collection[str]) -> Mapping[str, object]:
        # Deletion of a group removes its forbidden topics; topics of unknown groups are kept.
        self._forbidden_next = {
            group: topics for group, topics in self._forbidden.items() if group not in gone
        }
        return {FORBIDDEN: self._forbidden_next}

    def _on_change(self, _groups: Collection[str]) -> None:
        self._forbidden = self._forbidden_next

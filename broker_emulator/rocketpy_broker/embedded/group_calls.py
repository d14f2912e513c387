"""LocalBroker's calls about consumer groups. Holds no state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rocketpy_broker.client import group_admin
from rocketpy_broker.client.group_admin import (
    FIELDS,
    GroupDetails,
    GroupSettings,
    Reset,
    ResetQueue,
    ResetTarget,
    ResetTo,
)
from rocketpy_broker.embedded.calls import BrokerCalls, call
from rocketpy_broker.embedded.process import LocalBrokerError


class GroupCalls(BrokerCalls):
    """Creates, changes, resets and deletes consumer groups."""

    @call
    def create_group(self, group: str, **settings: bool | int) -> GroupDetails:
        """Creates a consumer group; one that exists is refused. Groups also come by their first use.

        `settings` are those of RocketMQ's SubscriptionGroupConfig in snake case, such as
        `retry_max_times=2` or `consume_enable=False`.
        """
        with self._connection() as connection:
            return group_admin.create_group(connection, group, _settings(settings))

    @call
    def update_group(self, group: str, **settings: bool | int) -> GroupDetails:
        """Changes what is named of a group, as `create_group` names it, and leave the rest."""
        with self._connection() as connection:
            return group_admin.update_group(connection, group, _settings(settings))

    @call
    def group(self, group: str) -> GroupDetails:
        """Returns the group with its settings, and how many messages wait for it to be consumed again."""
        with self._connection() as connection:
            return group_admin.get_group(connection, group)

    @call
    def groups(self) -> list[str]:
        """Names of all groups that have settings or progress, but for the broker's own."""
        with self._connection() as connection:
            return [found.group for found in group_admin.list_groups(connection)]

    @call
    def delete_group(self, group: str) -> None:
        """Deletes a group with its settings, its progress, its retries and its dead letters."""
        with self._connection() as connection:
            group_admin.delete_group(connection, group, force=True)

    @call
    def reset_group(
        self, topic: str, group: str, to: str | datetime | int, *, queue_id: int | None = None
    ) -> list[ResetQueue]:
        """Sets a group to other places of a topic; return each queue with its place before and now.

        `to` is `earliest`, `latest`, an offset, or a time with a time zone: then the first message
        that was stored at it or later. Without `queue_id` all queues are set.
        """
        reset = Reset(group, topic, _target(to), queue_id, force=True)
        with self._connection() as connection:
            return group_admin.reset_offsets(connection, reset)


def _settings(settings: Mapping[str, bool | int]) -> GroupSettings:
    for name, value in settings.items():
        if name not in FIELDS:
            raise LocalBrokerError(
                f"the group's setting is unknown: {name}. Accepted are {', '.join(FIELDS)}"
            )
        if not isinstance(value, int):
            raise LocalBrokerError(f"{name} is {value!r}, accepted is a bool or an int")
    return GroupSettings(settings)


def _target(to: str | datetime | int) -> ResetTarget:
    if isinstance(to, datetime) and to.tzinfo is None:
        raise LocalBrokerError(f"the time {to.isoformat()} has no time zone; give one")
    if not isinstance(to, str):
        return to
    try:
        return ResetTo(to)
    except ValueError as error:
        raise LocalBrokerError(
            f"to is {to!r}, accepted is 'earliest', 'latest', an offset or a datetime"
        ) from error

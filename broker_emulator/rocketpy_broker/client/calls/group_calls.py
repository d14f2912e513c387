"""Calls about consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rocketpy_broker.client import group_admin
from rocketpy_broker.client.calls.arguments import check_time
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.client.group_admin import (
    BOOL_FIELDS,
    FIELDS,
    NAMED_TARGETS,
    GroupDetails,
    ResetQueue,
)


class GroupCalls(BrokerCalls):
    """Calls that create, change, reset and delete consumer groups."""

    @call
    def create_group(self, group: str, **settings: bool | int) -> GroupDetails:
        """Creates a consumer group. Raises ClientError if it exists.

        The broker also creates a group at its first use. `settings` are the fields of RocketMQ's
        SubscriptionGroupConfig in snake case, such as `retry_max_times=2` or
        `consume_enable=False`.
        """
        with self._connection() as connection:
            answer = group_admin.create_group(connection, group, _checked(settings))
            return GroupDetails.of(group, answer)

    @call
    def update_group(self, group: str, **settings: bool | int) -> GroupDetails:
        """Changes the named settings of a group. `settings` are as in `create_group`."""
        with self._connection() as connection:
            answer = group_admin.update_group(connection, group, _checked(settings))
            return GroupDetails.of(group, answer)

    @call
    def group(self, group: str) -> GroupDetails:
        """Returns the group with its settings and its counts of retries and dead letters."""
        with self._connection() as connection:
            return GroupDetails.of(group, group_admin.get_group(connection, group))

    @call
    def groups(self) -> list[str]:
        """Returns the names of all groups with settings or progress, except the broker's own."""
        with self._connection() as connection:
            return [found.consumer_group for found in group_admin.list_groups(connection)]

    @call
    def delete_group(self, group: str) -> None:
        """Deletes a group with its settings, progress, retries and dead letters."""
        with self._connection() as connection:
            group_admin.delete_group(connection, group, force=True)

    @call
    def reset_group(
        self, topic: str, group: str, to: str | datetime | int, *, queue_id: int | None = None
    ) -> list[ResetQueue]:
        """Resets a group's offsets in a topic and returns the old and new offset of each queue.

        `to` is `earliest`, `latest`, an offset, or a time with a time zone. A time means the first
        message that was stored then or later. Without `queue_id` all queues are reset.
        """
        _check_target(to)
        with self._connection() as connection:
            return group_admin.reset_offsets(
                connection, group, topic, to, queue_id=queue_id, force=True
            )


def _checked(settings: Mapping[str, bool | int]) -> Mapping[str, bool | int]:
    for name, value in settings.items():
        if name not in FIELDS:
            raise ClientError(
                f"the group's setting is unknown: {name}. Accepted are {', '.join(FIELDS)}"
            )
        kind = "a bool" if name in BOOL_FIELDS else "an int"
        if not isinstance(value, int):
            raise ClientError(f"the group's setting {name} is {value!r}, accepted is {kind}")
    return settings


def _check_target(to: str | datetime | int) -> None:
    if isinstance(to, datetime):
        check_time(to)
    if isinstance(to, str) and to not in NAMED_TARGETS:
        raise ClientError(
            f"to is {to!r}, accepted is 'earliest', 'latest', an offset or a datetime"
        )

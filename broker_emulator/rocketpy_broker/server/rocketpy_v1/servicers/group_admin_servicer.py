"""The servicer of group administration, a part of rocketpy.v1.Groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.server.rocketpy_v1.texts import shown
from rocketpy_broker.services.admin.group_admin_service import GroupAdminService
from rocketpy_broker.services.admin.group_list import (
    TOPICS_SHOWN_MAX,
    GroupListing,
    GroupSummary,
)
from rocketpy_broker.services.groups.changes import GroupChange
from rocketpy_broker.services.groups.clients.members import Role
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.offsets.reset_service import ResetRequest, ResetService, ResetTo
from rocketpy_proto.rocketpy.v1 import groups_pb2

# Entries of an answer per scheduler slot; they take about 2 ms.
ENTRIES_A_TURN = 500
# Fields of GroupConfig that have the same names in SubscriptionGroupConfig.
FIELDS = tuple(
    field.name
    for field in groups_pb2.GroupConfig.DESCRIPTOR.fields
    if field.name not in {"consumer_group", "attributes"}
)


@dataclass(frozen=True, slots=True)
class GroupAdminServices:
    """The services that the group admin servicer calls."""

    listing: GroupListing
    changes: GroupAdminService
    resetting: ResetService


class GroupAdminServicer:
    """The methods that list groups and clients and change groups."""

    def __init__(self, services: GroupAdminServices, bytes_max: int) -> None:
        self._to = services
        self._bytes_max = bytes_max

    async def list_groups(
        self, request: groups_pb2.ListGroupsRequest, _context: status.Context
    ) -> groups_pb2.ListGroupsResponse:
        """Returns a page of groups."""
        try:
            page = await self._to.listing.groups(
                request.after, request.count_max, include_system=request.include_system
            )
        except BrokerError as error:
            return groups_pb2.ListGroupsResponse(status=status.failure(error))
        response = groups_pb2.ListGroupsResponse(status=status.success(), has_more=page.has_more)
        for begin in range(0, len(page.groups), ENTRIES_A_TURN):
            await take_slot("admin")
            part = page.groups[begin : begin + ENTRIES_A_TURN]
            response.groups.extend(_summary(each) for each in part)
        return response

    async def get_group(
        self, request: groups_pb2.GetGroupRequest, _context: status.Context
    ) -> groups_pb2.GetGroupResponse:
        """Returns one group."""
        try:
            details = await self._to.listing.get(request.consumer_group)
        except BrokerError as error:
            return groups_pb2.GetGroupResponse(status=status.failure(error))
        return groups_pb2.GetGroupResponse(
            status=status.success(),
            config=None if details.config is None else _config_message(details.config),
            member_count=details.member_count,
            retry_message_count=details.retry_message_count,
            dead_letter_count=details.dead_letter_count,
        )

    async def list_group_topics(
        self, request: groups_pb2.ListGroupTopicsRequest, _context: status.Context
    ) -> groups_pb2.ListGroupTopicsResponse:
        """Returns a page of a group's topics."""
        try:
            page = await self._to.listing.topics(
                request.consumer_group, request.after, request.count_max
            )
        except BrokerError as error:
            return groups_pb2.ListGroupTopicsResponse(status=status.failure(error))
        return groups_pb2.ListGroupTopicsResponse(
            status=status.success(),
            topics=[
                groups_pb2.GroupTopic(
                    topic=shown(each.topic),
                    is_subscribed=each.is_subscribed,
                    queue_count=each.queue_count,
                    committed_queue_count=each.committed_queue_count,
                    lag=each.lag,
                )
                for each in page.topics
            ],
            has_more=page.has_more,
        )

    async def update_group(
        self, request: groups_pb2.UpdateGroupRequest, _context: status.Context
    ) -> groups_pb2.UpdateGroupResponse:
        """Creates or changes a group."""
        config = request.config
        try:
            if config.attributes:
                raise ParameterIllegalError("attributes", dict(config.attributes), "none")
            given = {name: getattr(config, name) for name in FIELDS if config.HasField(name)}
            change = GroupChange(config.consumer_group, given)
            changed = await self._to.changes.update(change, create_only=request.create_only)
        except BrokerError as error:
            return groups_pb2.UpdateGroupResponse(status=status.failure(error))
        return groups_pb2.UpdateGroupResponse(
            status=status.success(), config=_config_message(changed)
        )

    async def delete_group(
        self, request: groups_pb2.DeleteGroupRequest, _context: status.Context
    ) -> groups_pb2.DeleteGroupResponse:
        """Removes a group."""
        try:
            topics = await self._to.changes.delete(
                request.consumer_group, keep_topics=request.keep_topics, force=request.force
            )
        except BrokerError as error:
            return groups_pb2.DeleteGroupResponse(status=status.failure(error))
        return groups_pb2.DeleteGroupResponse(status=status.success(), topics=topics)

    async def reset_offsets(
        self, request: groups_pb2.ResetOffsetsRequest, _context: status.Context
    ) -> groups_pb2.ResetOffsetsResponse:
        """Resets a group's offsets in a topic."""
        try:
            queues = await self._to.resetting.reset(_reset_request(request))
        except BrokerError as error:
            return groups_pb2.ResetOffsetsResponse(status=status.failure(error))
        response = groups_pb2.ResetOffsetsResponse(status=status.success())
        for begin in range(0, len(queues), ENTRIES_A_TURN):
            await take_slot("admin")
            response.offsets.extend(
                groups_pb2.ResetOffset(
                    queue_id=each.queue_id,
                    old_offset=each.old_offset,
                    new_offset=each.new_offset,
                )
                for each in queues[begin : begin + ENTRIES_A_TURN]
            )
        return response

    async def list_clients(
        self, request: groups_pb2.ListClientsRequest, _context: status.Context
    ) -> groups_pb2.ListClientsResponse:
        """Returns a page of clients."""
        try:
            page = await self._to.listing.clients(request.after, request.count_max)
        except BrokerError as error:
            return groups_pb2.ListClientsResponse(status=status.failure(error))
        response = groups_pb2.ListClientsResponse(status=status.success(), has_more=page.has_more)
        left = ENTRIES_A_TURN
        for client in page.clients:
            added = response.clients.add(client_id=client.client_id)
            for (role, group), member in client.registrations:
                added.registrations.add(
                    group=group,
                    is_producer=role is Role.PRODUCER,
                    address=member.address,
                    last_update_ms=member.last_update_ms,
                )
                left -= 1
                if not left:
                    left = ENTRIES_A_TURN
                    await take_slot("admin")
        return response

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "ListGroups": self.list_groups,
            "GetGroup": self.get_group,
            "ListGroupTopics": self.list_group_topics,
            "UpdateGroup": self.update_group,
            "DeleteGroup": self.delete_group,
            "ResetOffsets": self.reset_offsets,
            "ListClients": self.list_clients,
        }
        return all_bounded(groups_pb2, methods, self._bytes_max)


def _reset_request(request: groups_pb2.ResetOffsetsRequest) -> ResetRequest:
    """Returns the service's request. Raises ParameterIllegalError for one without a target."""
    which = request.WhichOneof("to")
    if which is None or (which in {"earliest", "latest"} and not getattr(request, which)):
        raise ParameterIllegalError("to", which or "", "earliest, latest, timestamp_ms or offset")
    to = ResetTo(which.removesuffix("_ms"))
    return ResetRequest(
        request.consumer_group,
        request.topic,
        request.queue_id if request.HasField("queue_id") else None,
        to,
        getattr(request, which) if to in {ResetTo.TIMESTAMP, ResetTo.OFFSET} else 0,
        request.force,
        request.dry_run,
    )


def _summary(summary: GroupSummary) -> groups_pb2.GroupSummary:
    message = groups_pb2.GroupSummary(
        consumer_group=shown(summary.group),
        is_configured=summary.is_configured,
        member_count=summary.member_count,
        topic_count=len(summary.topics),
        topics=[shown(topic) for topic in summary.topics[:TOPICS_SHOWN_MAX]],
        lag=summary.lag,
    )
    if summary.clients is not None:
        latest = summary.clients.latest
        message.consume_type = cast("groups_pb2.ConsumeType", latest.consume_type.value)
        message.message_model = cast("groups_pb2.MessageModel", latest.message_model.value)
    return message


def _config_message(config: SubscriptionGroupConfig) -> groups_pb2.GroupConfig:
    return groups_pb2.GroupConfig(
        consumer_group=shown(config.group),
        attributes={shown(name): shown(config.attributes[name]) for name in config.attributes},
        **{name: getattr(config, name) for name in FIELDS},
    )

"""The servicer of rocketpy.v1.Admin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc
import numpy as np

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded, bounded
from rocketpy_broker.server.rocketpy_v1.servicers.backup_servicer import BackupServicer
from rocketpy_broker.server.rocketpy_v1.servicers.statistics_servicer import StatisticsServicer
from rocketpy_broker.server.rocketpy_v1.texts import shown
from rocketpy_broker.services.admin.backup_service import BackupService
from rocketpy_broker.services.admin.broker_status import BrokerStatus, BrokerStatusService
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.store.cleaner import SegmentWait
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Entries of an answer per scheduler slot; they take about 2 ms.
ENTRIES_A_TURN = 500
SERVICE_NAME: str = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services that the admin servicer calls."""

    admin: TopicAdminService
    store_admin: StoreAdminService
    status: BrokerStatusService
    backups: BackupService
    statistics: StatisticsService
    request_bytes_max: int


class AdminServicer:
    """The methods for topics, single messages, cleaning, and broker information."""

    def __init__(self, services: AdminServices) -> None:
        self._to = services

    async def UpdateTopic(
        self, request: admin_pb2.UpdateTopicRequest, _context: status.Context
    ) -> admin_pb2.UpdateTopicResponse:
        """Creates or changes a topic."""
        try:
            await self._to.admin.update_topic(
                _to_change(request.config), create_only=request.create_only
            )
        except BrokerError as error:
            return admin_pb2.UpdateTopicResponse(status=status.failure(error))
        return admin_pb2.UpdateTopicResponse(status=status.success())

    async def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, _context: status.Context
    ) -> admin_pb2.DeleteTopicResponse:
        """Removes a topic."""
        try:
            await self._to.admin.delete_topic(request.topic)
        except BrokerError as error:
            return admin_pb2.DeleteTopicResponse(status=status.failure(error))
        return admin_pb2.DeleteTopicResponse(status=status.success())

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, _context: status.Context
    ) -> admin_pb2.ListTopicsResponse:
        """Returns a page of all topics, or the named ones, built in scheduler slots."""
        await scheduler.take_slot("admin")
        try:
            page = self._to.admin.list_topics(
                list(request.topics),
                request.after,
                request.count_max,
                include_system=request.include_system,
            )
        except BrokerError as error:
            return admin_pb2.ListTopicsResponse(status=status.failure(error))
        response = admin_pb2.ListTopicsResponse(status=status.success(), has_more=page.has_more)
        while part := list(islice(page.configs, ENTRIES_A_TURN)):
            await scheduler.take_slot("admin")
            response.configs.extend(_to_message(config) for config in part)
        return response

    async def ListTopicGroups(
        self, request: admin_pb2.ListTopicGroupsRequest, _context: status.Context
    ) -> admin_pb2.ListTopicGroupsResponse:
        """Returns a page of the groups with committed offsets in a topic."""
        try:
            page = await self._to.admin.topic_groups(
                request.topic, request.after, request.count_max
            )
        except BrokerError as error:
            return admin_pb2.ListTopicGroupsResponse(status=status.failure(error))
        return admin_pb2.ListTopicGroupsResponse(
            status=status.success(), groups=page.names, has_more=page.has_more
        )

    async def ListTopicQueues(
        self, request: admin_pb2.ListTopicQueuesRequest, _context: status.Context
    ) -> admin_pb2.ListTopicQueuesResponse:
        """Returns a page of the queues of a topic."""
        try:
            page = await self._to.admin.topic_queues(
                request.topic, request.queue_id, request.count_max
            )
        except BrokerError as error:
            return admin_pb2.ListTopicQueuesResponse(status=status.failure(error))
        return admin_pb2.ListTopicQueuesResponse(
            status=status.success(),
            queues=[
                admin_pb2.TopicQueueStatus(
                    queue_id=queue.queue_id,
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                    last_store_timestamp_ms=queue.last_store_timestamp_ms,
                )
                for queue in page.queues
            ],
            has_more=page.has_more,
        )

    async def GetBrokerStatus(
        self, _request: admin_pb2.GetBrokerStatusRequest, _context: status.Context
    ) -> admin_pb2.GetBrokerStatusResponse:
        """Returns the broker's status."""
        return _status_message(await self._to.status.status())

    async def GetBrokerInfo(
        self, _request: admin_pb2.GetBrokerInfoRequest, _context: status.Context
    ) -> admin_pb2.GetBrokerInfoResponse:
        """Returns the broker's version, names and limits."""
        info = self._to.admin.broker_info()
        return admin_pb2.GetBrokerInfoResponse(
            status=status.success(),
            version=info.version,
            cluster_name=info.cluster_name,
            broker_name=info.broker_name,
            body_bytes_max=info.body_bytes_max,
            request_bytes_max=info.request_bytes_max,
            flush_disk_type=info.flush_disk_type,
            refusal=info.refusal,
            commit_log_segment_bytes=info.commit_log_segment_bytes,
            store_id=info.store_id,
        )

    async def QueryMessage(
        self, request: admin_pb2.QueryMessageRequest, _context: status.Context
    ) -> admin_pb2.MessagesResponse:
        """Returns messages with a key or a tag."""
        await scheduler.take_slot("admin")
        try:
            records = self._to.store_admin.query_message(
                request.topic,
                request.key,
                request.begin_timestamp_ms,
                request.end_timestamp_ms,
                request.count_max,
                request.tag,
            )
        except BrokerError as error:
            return admin_pb2.MessagesResponse(status=status.failure(error))
        return _messages(records)

    async def ViewMessage(
        self, request: admin_pb2.ViewMessageRequest, _context: status.Context
    ) -> admin_pb2.MessagesResponse:
        """Returns the message with an id."""
        try:
            record = self._to.store_admin.view_message(request.offset_msg_id)
        except BrokerError as error:
            return admin_pb2.MessagesResponse(status=status.failure(error))
        return _messages([record])

    async def CleanExpiredFiles(
        self, _request: admin_pb2.CleanExpiredFilesRequest, _context: status.Context
    ) -> admin_pb2.CleanExpiredFilesResponse:
        """Removes expired segments now."""
        try:
            cleaned = await self._to.store_admin.clean_expired_files()
        except BrokerError as error:
            return admin_pb2.CleanExpiredFilesResponse(status=status.failure(error))
        return admin_pb2.CleanExpiredFilesResponse(
            status=status.success(),
            removed_file_count=cleaned.removed_count,
            log_begin_offset=self._to.store_admin.store.positions().log_begin,
            waiting_segments=_waiting(cleaned.waits),
        )

    async def CleanUnusedTopics(
        self, _request: admin_pb2.CleanUnusedTopicsRequest, _context: status.Context
    ) -> admin_pb2.CleanUnusedTopicsResponse:
        """Removes queues of topics that are not configured."""
        try:
            topics = await self._to.store_admin.clean_unused_topics()
        except BrokerError as error:
            return admin_pb2.CleanUnusedTopicsResponse(status=status.failure(error))
        return admin_pb2.CleanUnusedTopicsResponse(status=status.success(), topics=topics)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        bytes_max, messages = self._to.request_bytes_max, admin_pb2.MessagesResponse
        methods: dict[str, Callable[..., Any]] = {
            "UpdateTopic": self.UpdateTopic,
            "DeleteTopic": self.DeleteTopic,
            "ListTopics": self.ListTopics,
            "ListTopicGroups": self.ListTopicGroups,
            "ListTopicQueues": self.ListTopicQueues,
            "GetBrokerStatus": self.GetBrokerStatus,
            "GetBrokerInfo": self.GetBrokerInfo,
            "CleanExpiredFiles": self.CleanExpiredFiles,
            "CleanUnusedTopics": self.CleanUnusedTopics,
        }
        return {
            **all_bounded(admin_pb2, methods, bytes_max),
            "QueryMessage": bounded(
                self.QueryMessage, admin_pb2.QueryMessageRequest, messages, bytes_max
            ),
            "ViewMessage": bounded(
                self.ViewMessage, admin_pb2.ViewMessageRequest, messages, bytes_max
            ),
            **BackupServicer(
                self._to.backups, self._to.store_admin.store.config, bytes_max
            ).handlers(),
            **StatisticsServicer(self._to.store_admin, self._to.statistics, bytes_max).handlers(),
        }


def _waiting(waits: list[SegmentWait]) -> list[admin_pb2.WaitingSegments]:
    return [
        admin_pb2.WaitingSegments(
            reason=wait.reason.value,
            segment_count=wait.segment_count,
            until_timestamp_ms=wait.until_ms or 0,
        )
        for wait in waits
    ]


def _messages(records: list[memoryview]) -> admin_pb2.MessagesResponse:
    sizes = np.array([len(record) for record in records], ">i4")
    return admin_pb2.MessagesResponse(
        status=status.success(), record_sizes=sizes.tobytes(), records=b"".join(records)
    )


def _status_message(found: BrokerStatus) -> admin_pb2.GetBrokerStatusResponse:
    recovery = found.recovery
    message = admin_pb2.GetBrokerStatusResponse(
        status=status.success(),
        start_timestamp_ms=found.start_timestamp_ms,
        uptime_ms=found.uptime_ms,
        directories=[
            admin_pb2.StoreDirectory(role=role, path=shown(path))
            for role, path in found.directories.items()
        ],
        disk_bytes=found.disk.size,
        disk_bytes_free=found.disk.free,
        topic_count=found.topic_count,
        consumer_group_count=found.consumer_group_count,
        queue_count=found.queue_count,
        client_count=found.client_count,
        listener_count=found.listener_count,
        connection_count=found.connection_count,
        held_call_count=found.held_call_count,
        delay_level_pending_count=found.delay_level_pending_count,
        timer_pending_count=found.timer_pending_count,
        half_message_count=found.half_message_count,
        quarantined_file_count=found.quarantined_file_count,
        waiting_segments=_waiting(found.segment_waits),
    )
    if recovery is not None:
        message.recovered = recovery.abnormal
        message.recovery_damage_count = len(recovery.damages) + len(recovery.in_doubt)
        message.recovery_bytes_dropped = recovery.bytes_dropped
    return message


def _to_message(config: TopicConfig) -> admin_pb2.TopicConfig:
    return admin_pb2.TopicConfig(
        topic=shown(config.topic),
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        attributes={shown(key): shown(config.attributes[key]) for key in config.attributes},
        order=config.order,
        topic_filter_type=shown(config.topic_filter_type),
        topic_sys_flag=config.topic_sys_flag,
    )


def _to_change(config: admin_pb2.TopicConfig) -> TopicChange:
    def given(name: str) -> Any:
        return getattr(config, name) if config.HasField(name) else None

    return TopicChange(
        config.topic,
        given("read_queue_nums"),
        given("write_queue_nums"),
        given("perm"),
        dict(config.attributes),
        given("order"),
        given("topic_filter_type"),
        given("topic_sys_flag"),
    )

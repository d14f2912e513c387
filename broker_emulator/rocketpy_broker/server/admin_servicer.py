"""rocketpy.v1.Admin: translate, check, call a service, map the result. Holds no state."""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server import status
from rocketpy_broker.services.administration import AdminService
from rocketpy_broker.services.topic_config import TopicConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc

SERVICE_NAME: str = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Topics, and what broker this is."""

    def __init__(self, admin: AdminService) -> None:
        self._admin = admin

    async def UpdateTopic(
        self, request: admin_pb2.UpdateTopicRequest, _context: status.Context
    ) -> admin_pb2.UpdateTopicResponse:
        """Create or change a topic."""
        config = TopicConfig(
            request.config.topic,
            request.config.read_queue_nums,
            request.config.write_queue_nums,
            request.config.perm,
            dict(request.config.attributes),
        )
        try:
            self._admin.update_topic(config, create_only=request.create_only)
        except BrokerError as error:
            return admin_pb2.UpdateTopicResponse(status=status.failure(error))
        return admin_pb2.UpdateTopicResponse(status=status.success())

    async def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, _context: status.Context
    ) -> admin_pb2.DeleteTopicResponse:
        """Remove a topic."""
        try:
            self._admin.delete_topic(request.topic)
        except BrokerError as error:
            return admin_pb2.DeleteTopicResponse(status=status.failure(error))
        return admin_pb2.DeleteTopicResponse(status=status.success())

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, _context: status.Context
    ) -> admin_pb2.ListTopicsResponse:
        """All topics, or the named ones."""
        try:
            configs = self._admin.list_topics(
                list(request.topics), include_system=request.include_system
            )
        except BrokerError as error:
            return admin_pb2.ListTopicsResponse(status=status.failure(error))
        return admin_pb2.ListTopicsResponse(
            status=status.success(), configs=[_to_message(config) for config in configs]
        )

    async def GetBrokerInfo(
        self, _request: admin_pb2.GetBrokerInfoRequest, _context: status.Context
    ) -> admin_pb2.GetBrokerInfoResponse:
        """Version, names and limits."""
        info = self._admin.broker_info()
        return admin_pb2.GetBrokerInfoResponse(
            status=status.success(),
            version=info.version,
            cluster_name=info.cluster_name,
            broker_name=info.broker_name,
            body_bytes_max=info.body_bytes_max,
            request_bytes_max=info.request_bytes_max,
            flush_disk_type=info.flush_disk_type,
        )


def _to_message(config: TopicConfig) -> admin_pb2.TopicConfig:
    return admin_pb2.TopicConfig(
        topic=config.topic,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        attributes=dict(config.attributes),
    )

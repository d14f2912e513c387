"""Topics for RocketMQ's tools: changes, lists, queue states and units of queues.

Source: AdminBrokerProcessor, docs/design/remoting.md section 2.8, docs/design/broker_behaviour.md
sections 9.1 and 9.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError, TopicNotExistError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.tables import TableText, encode_large
from rocketpy_broker.server.remoting.values import subscription_body, topic_body
from rocketpy_broker.services.admin.pages import shown
from rocketpy_broker.services.admin.queues.consume_progress import ConsumeProgressService
from rocketpy_broker.services.admin.queues.units import QueueUnitService
from rocketpy_broker.services.admin.topic_admin_service import ENTRIES_A_SLOT, TopicAdminService
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.topics.attributes import parse_changes
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.configs import NO_VERSION, QUEUE_NUMS_MAX, TopicConfig
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies import configs, routes, stats
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest, QueryConsumeQueueRequest

# A larger body is decoded in a thread.
LARGE_BODY_BYTES = 65_536
# Topics that one save changes.
CHANGES_A_SAVE = 500


class TopicProcessor:
    """The processor of topics."""

    def __init__(
        self,
        topics: TopicConfigManager,
        store: MessageStore,
        admin: TopicAdminService,
        progress: ConsumeProgressService,
        units: QueueUnitService,
        statistics: StatisticsService,
        config: BrokerConfig,
    ) -> None:
        self._topics = topics
        self._store = store
        self._admin = admin
        self._progress = progress
        self._units = units
        self._statistics = statistics
        self._broker_name = config.broker_name

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.UPDATE_AND_CREATE_TOPIC: self._update,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: self._update_list,
            Code.DELETE_TOPIC_IN_BROKER: self._delete,
            Code.GET_ALL_TOPIC_CONFIG: self._all_configs,
            Code.GET_TOPIC_CONFIG: self._config,
            Code.GET_TOPIC_STATS_INFO: self._stats,
            Code.QUERY_TOPIC_CONSUME_BY_WHO: self._groups,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            Code.QUERY_CONSUME_QUEUE: self._queue_units,
        }

    # --- Changes ---

    async def _update(self, request: Request) -> RemotingCommand:
        header: CreateTopicRequest = request.header
        attributes = parse_changes(header.attributes or "")
        await self._admin.alter([_change(header.topic, header, attributes)])
        return request.answer()

    async def _update_list(self, request: Request) -> RemotingCommand:
        """Changes topics, CHANGES_A_SAVE at a time; parts before an error stay changed."""
        is_large = len(request.command.body) > LARGE_BODY_BYTES
        body: configs.CreateTopicListRequestBody = (
            await asyncio.to_thread(request.body) if is_large else request.body()
        )
        for begin in range(0, len(body.topic_configs), CHANGES_A_SAVE):
            await take_slot("admin")
            part = body.topic_configs[begin : begin + CHANGES_A_SAVE]
            await self._admin.alter([_change(each.topic, each, each.attributes) for each in part])
        return request.answer()

    async def _delete(self, request: Request) -> RemotingCommand:
        """Deletes a topic; a missing one counts as deleted."""
        topic = request.header.topic
        if not topic.strip():
            raise ParameterIllegalError("topic", topic, "the name of a topic")
        try:
            await self._admin.delete_topic(topic)
        except TopicNotExistError:
            return request.answer()
        return request.answer()

    # --- Queries ---

    async def _all_configs(self, request: Request) -> RemotingCommand:
        head = configs.TopicConfigTable(
            data_version=self._topics.version,
            mapping_data_version=NO_VERSION,
            topic_queue_mapping_detail_map={},
        )
        found = self._topics.configs(self._topics.names(include_system=True))
        table = TableText()
        while part := list(islice(found, ENTRIES_A_SLOT)):
            await take_slot("admin")
            table.add({shown(each.topic): topic_body(each) for each in part})
        return request.answer(body=await table.body(head, "topicConfigTable"))

    def _config(self, request: Request) -> RemotingCommand:
        return request.answer(body=encode_body(topic_body(self._topics.get(request.header.topic))))

    async def _stats(self, request: Request) -> RemotingCommand:
        config = self._topics.get(request.header.topic)
        topic, name = config.topic, shown(config.topic)
        count = min(max(config.read_queue_nums, config.write_queue_nums), QUEUE_NUMS_MAX)
        table = TableText()
        async for part in self._admin.queue_statuses(topic, range(count)):
            table.add(
                {
                    MessageQueue(self._broker_name, each.queue_id, name): stats.TopicOffset(
                        each.min_offset, each.max_offset, max(each.last_store_timestamp_ms, 0)
                    )
                    for each in part
                }
            )
        put = self._statistics.item("TOPIC_PUT_NUMS", topic)
        head = stats.TopicStatsTable(topic_put_tps=0.0 if put is None else put.minute.tps)
        return request.answer(body=await table.body(head, "offsetTable"))

    async def _groups(self, request: Request) -> RemotingCommand:
        groups = await self._progress.groups_of(request.header.topic)
        return request.answer(body=await encode_large(routes.GroupList(tuple(map(shown, groups)))))

    def _system_topics(self, request: Request) -> RemotingCommand:
        return request.answer(
            body=encode_body(routes.TopicList(tuple(self._topics.system_names())))
        )

    async def _queue_units(self, request: Request) -> RemotingCommand:
        header: QueryConsumeQueueRequest = request.header
        queue = QueueKey(header.topic, header.queue_id)
        bounds = self._units.bounds(queue)
        group = header.consumer_group
        found = self._progress.subscription(group, header.topic) if group else None
        units = await self._units.units(queue, header.index, header.count, found)
        body = stats.QueryConsumeQueueResponseBody(
            bounds.min_offset,
            bounds.max_offset,
            tuple(
                stats.ConsumeQueueData(
                    each.physical_offset, each.size, each.tags_code, each.is_matched
                )
                for each in units
            ),
            None if found is None else subscription_body(found),
        )
        return request.answer(body=encode_body(body))


def _change(
    topic: str, values: CreateTopicRequest | TopicConfig, attributes: Mapping[str, str]
) -> TopicChange:
    return TopicChange(
        topic,
        values.read_queue_nums,
        values.write_queue_nums,
        values.perm,
        attributes,
        values.order,
        values.topic_filter_type,
        values.topic_sys_flag,
    )

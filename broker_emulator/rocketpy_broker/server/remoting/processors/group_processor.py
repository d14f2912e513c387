"""Consumer groups for RocketMQ's tools: changes, lists, and progress in queues.

Source: AdminBrokerProcessor, docs/design/remoting.md section 2.8, docs/design/broker_behaviour.md
sections 9.2 and 9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import msgspec
from msgspec import structs

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import LENIENT_BODY_BYTES, Processor, Request
from rocketpy_broker.server.remoting.tables import AnswerSize, TableText, encode_large
from rocketpy_broker.server.remoting.values import (
    group_body,
    subscription_body,
)
from rocketpy_broker.services.admin.group_admin_service import GroupAdminService
from rocketpy_broker.services.admin.pages import shown
from rocketpy_broker.services.admin.queues.consume_progress import (
    ConsumeProgressService,
    QueueProgress,
    QueueTimes,
)
from rocketpy_broker.services.admin.topic_admin_service import ENTRIES_A_SLOT
from rocketpy_broker.services.groups.changes import GroupChange
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.configs import CUSTOMIZED, SubscriptionGroupConfig
from rocketpy_proto.remoting import (
    MessageQueue,
    RemotingCommand,
    encode_body,
    encode_with_part,
)
from rocketpy_proto.remoting.bodies import clients, configs, routes, stats
from rocketpy_proto.remoting.headers.clients import (
    BrokerConsumeStatsRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    DeleteGroupRequest,
)


class GroupProcessor:
    """The processor of consumer groups."""

    def __init__(
        self,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        admin: GroupAdminService,
        progress: ConsumeProgressService,
        config: BrokerConfig,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._admin = admin
        self._progress = progress
        self._broker_name = config.broker_name

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            Code.DELETE_SUBSCRIPTIONGROUP: self._delete,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_configs,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: self._config,
            Code.GET_CONSUME_STATS: self._stats,
            Code.GET_BROKER_CONSUME_STATS: self._broker_stats,
            Code.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            Code.QUERY_TOPICS_BY_CONSUMER: self._topics_of,
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
        }

    # --- Configuration ---

    async def _update(self, request: Request) -> RemotingCommand:
        """Creates a group, or replaces all its fields except the attributes."""
        body: SubscriptionGroupConfig = await request.bounded_body(LENIENT_BODY_BYTES)
        if body.attributes:
            raise ParameterIllegalError("attributes", dict(body.attributes), "none")
        fields = structs.asdict(body)
        for name in ("group", "attributes"):
            del fields[name]
        if body.group_retry_policy is CUSTOMIZED:
            # RocketMQ 4 knows no policy: the group keeps its own.
            del fields["group_retry_policy"]
        await self._admin.alter(GroupChange(body.group, fields))
        return request.answer()

    async def _delete(self, request: Request) -> RemotingCommand:
        """Deletes a group, even with members; its topics stay. A missing one counts as deleted."""
        header: DeleteGroupRequest = request.header
        await self._admin.remove(
            header.group_name, keep_topics=True, keep_offsets=not header.is_offset_cleaned
        )
        return request.answer()

    async def _all_configs(self, request: Request) -> RemotingCommand:
        head = configs.SubscriptionGroupTable(
            forbidden_table=self._groups.forbidden(),
            data_version=self._groups.version,
        )
        found = self._groups.configs(list(self._groups.names()))
        table = TableText()
        while part := list(islice(found, ENTRIES_A_SLOT)):
            await take_slot("admin")
            table.add({shown(each.group): group_body(each) for each in part})
        return request.answer(body=await table.body(head, "subscriptionGroupTable"))

    def _config(self, request: Request) -> RemotingCommand:
        return request.answer(body=encode_body(group_body(self._groups.get(request.header.group))))

    # --- Progress ---

    async def _stats(self, request: Request) -> RemotingCommand:
        header: ConsumeStatsRequest = request.header
        group, table, tps = header.consumer_group, TableText(), 0.0
        if header.topic_list:
            topics = list(dict.fromkeys(filter(None, header.topic_list.split(";"))))
        else:
            topics = [header.topic] if header.topic else await self._progress.topics_of(group)
        for topic in topics:
            if topic not in self._topics or self._progress.has_left(group, topic):
                continue
            tps += self._progress.consume_tps(group, topic)
            async for part in self._progress.queues(group, topic):
                table.add(self._wrappers(part))
        return request.answer(body=await table.body(stats.ConsumeStats(consume_tps=tps), _TABLE))

    async def _broker_stats(self, request: Request) -> RemotingCommand:
        header: BrokerConsumeStatsRequest = request.header
        size, texts, diff, inflight = AnswerSize(), list[bytes](), 0, 0
        for group, topics in (await self._progress.topics_by_group()).items():
            found: list[bytes] = []
            for topic in topics:
                config = self._topics.find(topic)
                is_wanted = config is not None and (config.order or not header.is_order)
                if not is_wanted or self._progress.has_left(group, topic):
                    continue
                table = TableText(size)
                async for part in self._progress.queues(group, topic):
                    table.add(self._wrappers(part))
                    diff += sum(each.broker_offset - each.consumer_offset for each in part)
                    inflight += sum(each.pull_offset - each.consumer_offset for each in part)
                tps = self._progress.consume_tps(group, topic)
                found.append(await table.body(stats.ConsumeStats(consume_tps=tps), _TABLE))
            if found:
                texts.append(b"{%s:[%s]}" % (msgspec.json.encode(shown(group)), b",".join(found)))
        head = stats.ConsumeStatsList((), _address(request), diff, inflight)
        body = encode_with_part(head, "consumeStatsList", b"[%s]" % b",".join(texts))
        return request.answer(body=body)

    async def _time_spans(self, request: Request) -> RemotingCommand:
        header: ConsumeTimeSpanRequest = request.header
        spans: list[stats.QueueTimeSpan] = []
        async for part in self._progress.queue_times(header.group, header.topic):
            spans += map(self._span, part)
        body = stats.QueryConsumeTimeSpanBody(tuple(spans))
        return request.answer(body=await encode_large(body))

    async def _topics_of(self, request: Request) -> RemotingCommand:
        topics = await self._progress.committed_topics(request.header.group)
        body = routes.TopicList(tuple(map(shown, topics)), _address(request))
        return request.answer(body=await encode_large(body))

    def _subscription(self, request: Request) -> RemotingCommand:
        group, topic = request.header.group, request.header.topic
        found = self._progress.subscription(group, topic or "")
        data = None if found is None else subscription_body(found)
        return request.answer(body=encode_body(clients.QuerySubscriptionBody(group, topic, data)))

    def _wrappers(self, part: list[QueueProgress]) -> dict[MessageQueue, stats.OffsetWrapper]:
        return {
            self._queue(each.queue): stats.OffsetWrapper(
                each.broker_offset, each.consumer_offset, each.pull_offset, each.last_ms
            )
            for each in part
        }

    def _span(self, times: QueueTimes) -> stats.QueueTimeSpan:
        queue = self._queue(times.queue)
        return stats.QueueTimeSpan(
            queue, times.min_ms, times.max_ms, times.consumed_ms, times.delay_ms
        )

    def _queue(self, queue: QueueKey) -> MessageQueue:
        return MessageQueue(self._broker_name, queue.queue_id, shown(queue.topic))


_TABLE = "offsetTable"


def _address(request: Request) -> str:
    """Returns the broker's address, as the client knows it."""
    return str(request.connection.local_host)

"""Checks of a pull request, in RocketMQ's order.

A pull without a consumer group is plain reading and checks no group. A pull of a group checks that
the group may consume; it may be filtered by the subscriptions of the group's members.
Fields replace the bits of RocketMQ's sysFlag. Bit 0 is a commit offset, bit 1 a wait time, bit 2
the absence of `registered_subscription`, bit 3 `class_filter`.
This broker has no lite pulls or static topics, so there are no checks for them.
PullService handles resets of offsets.
FILTER_DATA_NOT_LATEST cannot occur: a subscription and its filter are one entry.
Source: PullMessageProcessor#processRequest,
docs/design/broker_behaviour.md sections 2.1, 2.2 and 2.6.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import (
    FilterDataNotExistError,
    ParameterIllegalError,
    PermissionDeniedError,
    SubscriptionNotExistError,
    SubscriptionNotLatestError,
    SubscriptionParseError,
)
from rocketpy_broker.services.filters.service import (
    FilterService,
    FilterText,
    MessageFilter,
    Sql92Filter,
)
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.files.recoveries import TruncatedError
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import ANY_COUNT, QueueKey, ReadLimits
from rocketpy_proto.model.configs import Perm, SubscriptionGroupConfig

NO_END = 1 << 62


class PullRequest(NamedTuple):
    """A pull request; 0 means no end, the default size, and no waiting.

    `sub_version` matters with `registered_subscription` only. `count_max` limits the messages of a
    group's pull without a size.
    """

    queue: QueueKey
    offset: int = 0
    offset_end: int = 0
    response_bytes_max: int = 0
    wait_ms_max: int = 0
    filter_text: FilterText = FilterText()
    consumer_group: str = ""
    commit_offset: int | None = None
    registered_subscription: bool = False
    sub_version: int = 0
    class_filter: bool = False
    topic_epoch: int = 0
    recovery_id: str = ""
    count_max: int = ANY_COUNT


class PullCommand(NamedTuple):
    """A checked pull request; `limits` apply to one response, `sql92` is applied within them."""

    queue: QueueKey
    offset: int
    offset_end: int
    limits: ReadLimits
    wait_ms: int
    sql92: Sql92Filter | None = None


class PullChecks:
    """The checks of pull requests."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: Groups,
        filters: FilterService,
        config: BrokerConfig,
        store: MessageStore,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self.configure(config)
        self._store = store

    def configure(self, config: BrokerConfig) -> None:
        """Takes in a changed configuration."""
        self._config = config

    def command(self, request: PullRequest) -> PullCommand:
        """Returns the checked read. It changes nothing: an unknown group is created later.

        Raises PermissionDeniedError, SubscriptionGroupNotExistError, ClientsFullError,
        TopicNotExistError, QueueIdIllegalError, SubscriptionParseError, SubscriptionNotExistError,
        SubscriptionNotLatestError, FilterDataNotExistError, ParameterIllegalError, TruncatedError.
        """
        if not self._config.broker_permission & Perm.READ:
            raise PermissionDeniedError(
                f"the broker[{self._config.broker_name}] pulling message is forbidden"
            )
        if request.consumer_group:
            self._check_group(request.consumer_group)
        self._topics.check_readable(*request.queue, is_hidden_too=self._is_planned(request))
        self.check_topic(request)
        wanted = self._filter(request)
        self._check_numbers(request)
        return PullCommand(
            request.queue,
            request.offset,
            self._end(request),
            self._limits(request, wanted),
            request.wait_ms_max,
            wanted.sql92,
        )

    def _is_planned(self, request: PullRequest) -> bool:
        """True if plain reading has an end, and its queue has messages from its offset on.

        The range was planned while readers saw the queue. So it stays readable although the queue
        is now hidden.
        """
        is_plain = not request.consumer_group and request.offset_end > 0
        return is_plain and request.offset < self._store.range_of(request.queue).max_offset

    def _end(self, request: PullRequest) -> int:
        """Returns the end offset, which is before any message stored since a recovery.

        Only recoveries that the client does not know count. Raises TruncatedError if the request's
        offset is not before such a message.
        """
        end = request.offset_end or NO_END
        log_end = self._store.recoveries.log_end_since(request.recovery_id)
        if log_end is None:
            return end
        cut_offset = self._store.queue_lookup.first_after(request.queue, log_end)
        if request.offset >= cut_offset:
            raise TruncatedError(*request.queue, cut_offset)
        return min(end, cut_offset)

    def check_topic(self, request: PullRequest) -> None:
        """Raises TopicNotExistError if the topic of the request's epoch is gone."""
        if request.topic_epoch:
            self._topics.check_epoch(request.queue.topic, request.topic_epoch)

    def _check_group(self, name: str) -> None:
        configs = self._groups.configs
        configs.check_available(name)
        group = configs.get(name) if name in configs else SubscriptionGroupConfig(name)
        if not group.consume_enable:
            raise PermissionDeniedError(
                f"subscription group no permission, {name}: its consumeEnable is false"
            )

    def _filter(self, request: PullRequest) -> MessageFilter:
        if request.class_filter:
            raise SubscriptionParseError(
                "a class filter needs a filter server, which RocketMQ 5 no longer has. Use an "
                "expression of type TAG or SQL92"
            )
        if not request.registered_subscription:
            return self._filters.filter_of(request.filter_text)
        text = request.filter_text
        if text.tags_codes or text.expression or text.expression_type:
            raise SubscriptionParseError(
                "the request has a filter and names the group's registered subscription; send "
                "one of them"
            )
        return self._registered(request)

    def _registered(self, request: PullRequest) -> MessageFilter:
        """Returns the filter of the group's registered subscription."""
        name, topic = request.consumer_group, request.queue.topic
        if not name:
            accepted = "the group of the registered_subscription"
            raise ParameterIllegalError("consumer_group", name, accepted)
        group = self._groups.clients.consumer_group(name)
        if group is None:
            raise SubscriptionNotExistError(name)
        config = self._groups.configs.find(name)
        if group.is_broadcasting and config is not None and not config.consume_broadcast_enable:
            raise PermissionDeniedError(
                f"the consumer group[{name}] can not consume by broadcast way"
            )
        if self._groups.configs.is_forbidden(name, topic):
            raise PermissionDeniedError(
                f"the consumer group[{name}] is forbidden for topic[{topic}]"
            )
        found = group.subscriptions.get(topic)
        if found is None:
            raise SubscriptionNotExistError(name, topic)
        if found.sub_version < request.sub_version:
            versions = found.sub_version, request.sub_version
            raise SubscriptionNotLatestError(name, topic, *versions)
        try:
            return self._filters.filter_of(FilterText(found.expression_type, found.expression))
        except SubscriptionParseError as error:
            raise FilterDataNotExistError(name, topic, error.remark) from error

    def _check_numbers(self, request: PullRequest) -> None:
        offset, end = request.offset, request.offset_end
        if offset < 0:
            raise ParameterIllegalError("offset", offset, "0 or more")
        if end and end <= offset:
            raise ParameterIllegalError("offset_end", end, f"0, or greater than {offset}")
        size = request.response_bytes_max
        if size < 0:
            raise ParameterIllegalError("response_bytes_max", size, "0 or more")
        wait_ms, wait_ms_max = request.wait_ms_max, self._config.limits.pull_wait_ms_max
        if not 0 <= wait_ms <= wait_ms_max:
            raise ParameterIllegalError("wait_ms_max", wait_ms, f"0 to {wait_ms_max}")

    def _limits(self, request: PullRequest, wanted: MessageFilter) -> ReadLimits:
        """Returns RocketMQ's limits for a group's pull without a size; else limits by bytes."""
        limits, codes = self._config.limits, wanted.tags_codes
        if request.consumer_group and not request.response_bytes_max:
            transfer = limits.transfer
            return ReadLimits(
                min(transfer.count_on_message_in_memory, request.count_max),
                transfer.bytes_on_message_in_memory,
                min(transfer.count_on_message_in_disk, request.count_max),
                transfer.bytes_on_message_in_disk,
                codes,
            )
        wish = request.response_bytes_max or limits.pull_response_bytes
        bytes_max = min(wish, limits.pull_response_bytes_max)
        return ReadLimits(request.count_max, bytes_max, request.count_max, bytes_max, codes)

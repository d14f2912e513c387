"""Rules for names in requests, one for each text field.

The decoder applies them. No code looks up, holds, stores or logs a name before this module has
checked its length and characters. A service may require more. `RULES` has a line for every text
field, every list of texts, and every list of messages with names. A request with a field without a
rule cannot be served. A name that a list repeats is checked once.
Source: TopicValidator, docs/design/broker_behaviour.md section 1.2, docs/design/storage.md section
12.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ParameterIllegalError, TopicIllegalError
from rocketpy_broker.services.batches.jobs import WRITER_ID_CHARACTERS_MAX
from rocketpy_broker.services.groups.manager import GROUP_BYTES_MAX, GROUP_PATTERN
from rocketpy_broker.services.topics.manager import TOPIC_BYTES_MAX, TOPIC_PATTERN
from rocketpy_broker.services.work_time import check_count
from rocketpy_proto.call_limits import ENTRIES_MAX, OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX

_CLIENTS = ClientLimits()
_CHARACTERS = "of the characters a-z A-Z 0-9 _ - % |"
# A record has one byte for the length of a topic's name; RocketMQ creates retry topics that long.
_STORED_BYTES_MAX = 255
# Legal names of one field that are remembered; further names are checked each time.
_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class NameRule:
    """A rule for a name; `is_legal` is called with texts of 1 to `size_max` characters."""

    size_max: int
    accepted: str
    is_legal: Callable[[str], object]
    may_be_empty: bool = False
    is_topic: bool = False

    def check(self, field: str, text: str) -> None:
        """Raises ParameterIllegalError, or TopicIllegalError for a topic that may be created."""
        if not text:
            if self.may_be_empty:
                return
        elif len(text) <= self.size_max and self.is_legal(text):
            return
        shown = text[: self.size_max + 1]
        if self.is_topic:
            raise TopicIllegalError(f"topic name {shown!r:.200} is illegal; use {self.accepted}")
        raise ParameterIllegalError(field, shown, self.accepted)

    def or_empty(self) -> NameRule:
        """Returns the same rule for an optional field."""
        return replace(self, may_be_empty=True)


@dataclass(frozen=True, slots=True)
class EntriesMax:
    """The most entries of a list of messages with names.

    If the entries have lists of their own, the limit is for all entries together. `checked_later`
    leaves the names to the code that reads the entries: two passes over them would be slow.
    """

    count: int
    checked_later: bool = False


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of at most `count_max` names."""

    rule: NameRule
    count_max: int


# Names that a request may create or make the broker keep.
TOPIC = NameRule(TOPIC_BYTES_MAX, f"1 to {TOPIC_BYTES_MAX} {_CHARACTERS}", TOPIC_PATTERN.fullmatch)
NEW_TOPIC = replace(TOPIC, is_topic=True)
GROUP = NameRule(GROUP_BYTES_MAX, f"1 to {GROUP_BYTES_MAX} {_CHARACTERS}", GROUP_PATTERN.fullmatch)
# Names that a request may look up. RocketMQ may have written the store, and some versions accept
# longer names. The names of the broker and its cluster are topics, too.
STORED = NameRule(
    _STORED_BYTES_MAX, f"1 to {_STORED_BYTES_MAX} printable characters", str.isprintable
)
CLIENT_ID = NameRule(
    _CLIENTS.client_id_bytes_max,
    f"1 to {_CLIENTS.client_id_bytes_max} bytes of printable characters",
    lambda text: text.isprintable() and len(text.encode()) <= _CLIENTS.client_id_bytes_max,
)
WRITER_ID = NameRule(
    WRITER_ID_CHARACTERS_MAX, f"1 to {WRITER_ID_CHARACTERS_MAX} characters", lambda _text: True
)
KEY = NameRule(
    PROPERTIES_BYTES_MAX, f"up to {PROPERTIES_BYTES_MAX} characters", lambda _text: True
).or_empty()
# Not a name: the call parses or compares the text by its own rule and does not keep it.
TEXT = None
Rule = NameRule | Texts | EntriesMax | None
# The most subscriptions in a heartbeat.
_SUBSCRIPTIONS = EntriesMax(_CLIENTS.subscriptions_per_heartbeat_max)

RULES: Mapping[str, Rule] = {
    # Parts of several requests
    "QueueTime.topic": STORED,
    "TopicQueue.topic": STORED,
    "OffsetRange.topic": STORED,
    "KnownOffset.topic": STORED,
    "CommittedOffset.topic": STORED,
    "LockedQueue.topic": TOPIC,
    "BatchJob.writer_id": WRITER_ID,
    "BatchJob.store_id": TEXT,
    # Broker
    "AppendRequest.topic": NEW_TOPIC,
    "AppendRequest.default_topic": NEW_TOPIC.or_empty(),
    "AppendRequest.store_id": TEXT,
    "PullRequest.topic": STORED,
    "PullRequest.consumer_group": STORED.or_empty(),
    "PullRequest.expression_type": TEXT,
    "PullRequest.expression": TEXT,
    "PullRequest.store_id": TEXT,
    "PullRequest.recovery_id": TEXT,
    "CheckFilterRequest.expression_type": TEXT,
    "CheckFilterRequest.expression": TEXT,
    # A request without records has no topic.
    "StageBlocksRequest.topic": NEW_TOPIC.or_empty(),
    "QueryOffsetsRequest.topics": Texts(STORED, OFFSET_QUERY_ENTRIES_MAX),
    "QueryOffsetsRequest.consumer_group": GROUP.or_empty(),
    "QueryOffsetsRequest.topic_pattern": TEXT,
    "QueryOffsetsRequest.known": EntriesMax(OFFSET_QUERY_ENTRIES_MAX, checked_later=True),
    "QueryOffsetsRequest.store_id": TEXT,
    "QueryOffsetsRequest.recovery_id": TEXT,
    "QueryOffsetsRequest.hidden_queues": EntriesMax(OFFSET_QUERY_ENTRIES_MAX),
    "SearchOffsetsRequest.queues": EntriesMax(ENTRIES_MAX),
    "SearchOffsetsRequest.store_id": TEXT,
    "FindKeysRequest.ranges": EntriesMax(ENTRIES_MAX),
    # Any number is allowed; beyond a limit none is looked up.
    "FindKeysRequest.keys": TEXT,
    "FindKeysRequest.store_id": TEXT,
    "MeasureRangesRequest.ranges": EntriesMax(ENTRIES_MAX),
    "MeasureRangesRequest.store_id": TEXT,
    "LimitRangesRequest.ranges": EntriesMax(ENTRIES_MAX),
    "LimitRangesRequest.store_id": TEXT,
    "QueryConsumerOffsetsRequest.consumer_group": STORED,
    "QueryConsumerOffsetsRequest.queues": EntriesMax(ENTRIES_MAX),
    "CommitOffsetsRequest.consumer_group": GROUP,
    "CommitOffsetsRequest.offsets": EntriesMax(ENTRIES_MAX),
    "CommitOffsetsRequest.store_id": TEXT,
    "SparkReport.driver_host": CLIENT_ID.or_empty(),
    "RecallMessageRequest.topic": STORED,
    "RecallMessageRequest.recall_handle": TEXT,
    # Groups
    "HeartbeatRequest.client_id": CLIENT_ID,
    "HeartbeatRequest.producer_groups": Texts(GROUP, _SUBSCRIPTIONS.count),
    "HeartbeatRequest.consumers": _SUBSCRIPTIONS,
    "ConsumerData.consumer_group": GROUP,
    "ConsumerData.subscriptions": _SUBSCRIPTIONS,
    "Subscription.topic": TOPIC,
    "Subscription.expression_type": TEXT,
    "Subscription.expression": TEXT,
    "UnregisterRequest.client_id": CLIENT_ID,
    "UnregisterRequest.producer_group": GROUP.or_empty(),
    "UnregisterRequest.consumer_group": GROUP.or_empty(),
    "ListMembersRequest.consumer_group": STORED,
    "ConnectionsRequest.consumer_group": STORED.or_empty(),
    "ConnectionsRequest.producer_group": STORED.or_empty(),
    "ConnectionsRequest.after": CLIENT_ID.or_empty(),
    "LockQueuesRequest.consumer_group": STORED,
    "LockQueuesRequest.client_id": CLIENT_ID,
    "LockQueuesRequest.queues": EntriesMax(_CLIENTS.queues_per_lock_max),
    "UnlockQueuesRequest.consumer_group": STORED,
    "UnlockQueuesRequest.client_id": CLIENT_ID,
    "UnlockQueuesRequest.queues": EntriesMax(_CLIENTS.queues_per_lock_max),
    "NoticesRequest.client_id": CLIENT_ID,
    "ListGroupsRequest.after": STORED.or_empty(),
    "ListGroupsRequest.prefix": STORED.or_empty(),
    "GetGroupRequest.consumer_group": STORED,
    "ListGroupTopicsRequest.consumer_group": STORED,
    "ListGroupTopicsRequest.after": STORED.or_empty(),
    "GroupConfig.consumer_group": GROUP,
    # Always refused.
    "GroupConfig.attributes": TEXT,
    "DeleteGroupRequest.consumer_group": STORED,
    "ResetOffsetsRequest.consumer_group": STORED,
    "ResetOffsetsRequest.topic": STORED,
    "ListClientsRequest.after": CLIENT_ID.or_empty(),
    # Admin
    "TopicConfig.topic": NEW_TOPIC,
    # The service checks attributes after the name, and refuses them with RocketMQ's code.
    "TopicConfig.attributes": TEXT,
    "TopicConfig.topic_filter_type": TEXT,
    # Compared with the roles.
    "PromoteRequest.broker_role": TEXT,
    "DeleteTopicRequest.topic": STORED,
    "EmptyTopicRequest.topic": STORED,
    "ListTopicsRequest.after": STORED.or_empty(),
    "ListTopicsRequest.prefix": STORED.or_empty(),
    "ListTopicQueuesRequest.topic": STORED,
    "ListTopicsRequest.topics": Texts(STORED, OFFSET_QUERY_ENTRIES_MAX),
    "ListTopicGroupsRequest.topic": STORED,
    "ListTopicGroupsRequest.after": STORED.or_empty(),
    "QueryMessageRequest.topic": STORED,
    "QueryMessageRequest.key": KEY,
    "QueryMessageRequest.tag": KEY,
    "ViewMessageRequest.offset_msg_id": TEXT,
    "GetStoreStatisticsRequest.topics_after": STORED.or_empty(),
    "GetStatisticsRequest.names": TEXT,
    "GetStatisticsRequest.topic": STORED.or_empty(),
    "GetStatisticsRequest.consumer_group": STORED.or_empty(),
    "GetHistoryRequest.consumer_group": STORED.or_empty(),
    # Compared with known keys.
    "GetStatisticsRequest.keys": TEXT,
    # The table of users checks them.
    "User.access_key": TEXT,
    "User.secret_key": TEXT,
    "User.role": TEXT,
    "User.topic_permissions": TEXT,
    "User.group_permissions": TEXT,
    "User.default_topic_permission": TEXT,
    "User.default_group_permission": TEXT,
    "DeleteUserRequest.access_key": TEXT,
    # Transactions: a group is a property of a stored message, which may be any text.
    "EndTransactionRequest.producer_group": KEY,
    "EndTransactionRequest.transaction_id": TEXT,
    "ListTransactionsRequest.producer_group": KEY,
    "ListTransactionsRequest.transaction_id": TEXT,
    # Retry
    "SendBackRequest.consumer_group": STORED,
    "SendBackRequest.messages": EntriesMax(ENTRIES_MAX),
    "MessageToSendBack.origin_msg_id": TEXT,
    "MessageToSendBack.origin_topic": STORED.or_empty(),
}


class Names:
    """A checker of the names in messages of one type."""

    def __init__(self, message: Any) -> None:
        """Takes a descriptor. Raises LookupError if a field has no rule."""
        # Each with the legal names seen so far: most requests repeat one of a few names.
        self._texts: list[tuple[str, NameRule, set[str]]] = []
        self._text_lists: list[tuple[str, Texts]] = []
        self._parts: list[tuple[str, Names]] = []
        self._entries: list[tuple[str, EntriesMax, Names]] = []
        for field in message.fields:
            rule = _rule_of(field)
            if isinstance(rule, NameRule):
                self._texts.append((field.name, rule, set()))
            elif isinstance(rule, Texts):
                self._text_lists.append((field.name, rule))
            elif isinstance(rule, EntriesMax):
                self._entries.append((field.name, rule, Names(field.message_type)))
            elif _is_part(field) and (names := Names(field.message_type)):
                self._parts.append((field.name, names))

    def __bool__(self) -> bool:
        return any((self._texts, self._text_lists, self._parts, self._entries))

    def check(self, message: Message) -> None:
        """Raises ParameterIllegalError or TopicIllegalError for an illegal name or a long list."""
        for field, rule, legal in self._texts:
            text = getattr(message, field)
            if text not in legal:
                rule.check(field, text)
                if len(legal) < _REMEMBERED and len(text) <= _STORED_BYTES_MAX:
                    legal.add(text)
        for field, names in self._parts:
            names.check(getattr(message, field))
        for field, texts in self._text_lists:
            found = getattr(message, field)
            check_count(field, found, texts.count_max)
            check_each(texts.rule, field.removesuffix("s"), found)
        for field, entries_max, names in self._entries:
            entries = getattr(message, field)
            check_count(field, entries, entries_max.count)
            if not entries_max.checked_later:
                names.check_counts(entries)
                names.check_all(entries)

    def check_counts(self, messages: Any) -> None:
        """Raises ParameterIllegalError if lists in `messages` have too many entries in total."""
        for field, entries_max, _ in self._entries:
            count = sum(len(getattr(message, field)) for message in messages)
            if count > entries_max.count:
                accepted = f"{entries_max.count} or fewer in one request"
                raise ParameterIllegalError(f"number of {field}", count, accepted)

    def check_all(self, messages: Any) -> None:
        """Checks each of `messages` as `check` does.

        If a message has one name and no lists, a repeated name is checked once.
        """
        if len(self._texts) == 1 and not (self._text_lists or self._parts or self._entries):
            ((field, rule, _),) = self._texts
            check_each(rule, field, map(attrgetter(field), messages))
            return
        for message in messages:
            self.check(message)


def check_each(rule: NameRule, field: str, texts: Iterable[str]) -> None:
    """Checks each distinct name once. Raises ParameterIllegalError."""
    for text in dict.fromkeys(texts):
        rule.check(field, text)


def _is_part(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.message_type.GetOptions().map_entry


def needs_rule(field: FieldDescriptor) -> bool:
    """True if the field is a text, a map, or a list of messages with such fields."""
    if field.message_type is None or not _is_part(field):
        return field.type == FieldDescriptor.TYPE_STRING or field.message_type is not None
    return field.is_repeated and any(map(needs_rule, field.message_type.fields))


def _rule_of(field: Any) -> Rule:
    if not needs_rule(field):
        return None
    name = f"{field.containing_type.name}.{field.name}"
    if name not in RULES:
        raise LookupError(f"{name} has no rule; add one to RULES in {__name__}")
    return RULES[name]

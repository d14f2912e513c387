from rocketpy_proto.rocketpy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConsumeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSUME_TYPE_UNSPECIFIED: _ClassVar[ConsumeType]
    CONSUME_ACTIVELY: _ClassVar[ConsumeType]
    CONSUME_PASSIVELY: _ClassVar[ConsumeType]
    CONSUME_POP: _ClassVar[ConsumeType]

class MessageModel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_MODEL_UNSPECIFIED: _ClassVar[MessageModel]
    BROADCASTING: _ClassVar[MessageModel]
    CLUSTERING: _ClassVar[MessageModel]

class ConsumeFromWhere(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSUME_FROM_UNSPECIFIED: _ClassVar[ConsumeFromWhere]
    CONSUME_FROM_LAST_OFFSET: _ClassVar[ConsumeFromWhere]
    CONSUME_FROM_FIRST_OFFSET: _ClassVar[ConsumeFromWhere]
    CONSUME_FROM_TIMESTAMP: _ClassVar[ConsumeFromWhere]
CONSUME_TYPE_UNSPECIFIED: ConsumeType
CONSUME_ACTIVELY: ConsumeType
CONSUME_PASSIVELY: ConsumeType
CONSUME_POP: ConsumeType
MESSAGE_MODEL_UNSPECIFIED: MessageModel
BROADCASTING: MessageModel
CLUSTERING: MessageModel
CONSUME_FROM_UNSPECIFIED: ConsumeFromWhere
CONSUME_FROM_LAST_OFFSET: ConsumeFromWhere
CONSUME_FROM_FIRST_OFFSET: ConsumeFromWhere
CONSUME_FROM_TIMESTAMP: ConsumeFromWhere

class Subscription(_message.Message):
    __slots__ = ("topic", "expression_type", "expression", "sub_version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    SUB_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    expression_type: str
    expression: str
    sub_version: int
    def __init__(self, topic: _Optional[str] = ..., expression_type: _Optional[str] = ..., expression: _Optional[str] = ..., sub_version: _Optional[int] = ...) -> None: ...

class ConsumerData(_message.Message):
    __slots__ = ("consumer_group", "consume_type", "message_model", "consume_from_where", "subscriptions", "unit_mode")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUME_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_MODEL_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FROM_WHERE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNIT_MODE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    unit_mode: bool
    def __init__(self, consumer_group: _Optional[str] = ..., consume_type: _Optional[_Union[ConsumeType, str]] = ..., message_model: _Optional[_Union[MessageModel, str]] = ..., consume_from_where: _Optional[_Union[ConsumeFromWhere, str]] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., unit_mode: bool = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("client_id", "producer_groups", "consumers")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    producer_groups: _containers.RepeatedScalarFieldContainer[str]
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerData]
    def __init__(self, client_id: _Optional[str] = ..., producer_groups: _Optional[_Iterable[str]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerData, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class UnregisterRequest(_message.Message):
    __slots__ = ("client_id", "producer_group", "consumer_group")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    producer_group: str
    consumer_group: str
    def __init__(self, client_id: _Optional[str] = ..., producer_group: _Optional[str] = ..., consumer_group: _Optional[str] = ...) -> None: ...

class UnregisterResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("status", "client_ids")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., client_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ConnectionsRequest(_message.Message):
    __slots__ = ("consumer_group", "producer_group", "after", "count_max")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    producer_group: str
    after: str
    count_max: int
    def __init__(self, consumer_group: _Optional[str] = ..., producer_group: _Optional[str] = ..., after: _Optional[str] = ..., count_max: _Optional[int] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("client_id", "address", "last_update_ms", "language", "version")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATE_MS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    address: str
    last_update_ms: int
    language: str
    version: int
    def __init__(self, client_id: _Optional[str] = ..., address: _Optional[str] = ..., last_update_ms: _Optional[int] = ..., language: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ConnectionsResponse(_message.Message):
    __slots__ = ("status", "consumers", "producers", "consumer_data", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    consumers: _containers.RepeatedCompositeFieldContainer[Connection]
    producers: _containers.RepeatedCompositeFieldContainer[Connection]
    consumer_data: ConsumerData
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., consumers: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ..., producers: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ..., consumer_data: _Optional[_Union[ConsumerData, _Mapping]] = ..., has_more: bool = ...) -> None: ...

class LockedQueue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("consumer_group", "client_id", "queues")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    def __init__(self, consumer_group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ...) -> None: ...

class LockQueuesResponse(_message.Message):
    __slots__ = ("status", "queues")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    queues: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ...) -> None: ...

class UnlockQueuesRequest(_message.Message):
    __slots__ = ("consumer_group", "client_id", "queues")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    def __init__(self, consumer_group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ...) -> None: ...

class UnlockQueuesResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class NoticesRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class MembersChanged(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class CheckTransaction(_message.Message):
    __slots__ = ("producer_group", "transaction_id", "offset_msg_id", "commit_log_offset", "queue_offset", "record")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction_id: str
    offset_msg_id: str
    commit_log_offset: int
    queue_offset: int
    record: bytes
    def __init__(self, producer_group: _Optional[str] = ..., transaction_id: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., commit_log_offset: _Optional[int] = ..., queue_offset: _Optional[int] = ..., record: _Optional[bytes] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("status", "members_changed", "check_transaction")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    CHECK_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    members_changed: MembersChanged
    check_transaction: CheckTransaction
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., members_changed: _Optional[_Union[MembersChanged, _Mapping]] = ..., check_transaction: _Optional[_Union[CheckTransaction, _Mapping]] = ...) -> None: ...

class GroupConfig(_message.Message):
    __slots__ = ("consumer_group", "consume_enable", "consume_from_min_enable", "consume_broadcast_enable", "consume_message_orderly", "retry_queue_nums", "retry_max_times", "broker_id", "which_broker_when_consume_slowly", "notify_consumer_ids_changed_enable", "group_sys_flag", "consume_timeout_minute", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FROM_MIN_ENABLE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_BROADCAST_ENABLE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_MESSAGE_ORDERLY_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUE_NUMS_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_TIMES_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    WHICH_BROKER_WHEN_CONSUME_SLOWLY_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_CONSUMER_IDS_CHANGED_ENABLE_FIELD_NUMBER: _ClassVar[int]
    GROUP_SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    CONSUME_TIMEOUT_MINUTE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    group_sys_flag: int
    consume_timeout_minute: int
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, consumer_group: _Optional[str] = ..., consume_enable: bool = ..., consume_from_min_enable: bool = ..., consume_broadcast_enable: bool = ..., consume_message_orderly: bool = ..., retry_queue_nums: _Optional[int] = ..., retry_max_times: _Optional[int] = ..., broker_id: _Optional[int] = ..., which_broker_when_consume_slowly: _Optional[int] = ..., notify_consumer_ids_changed_enable: bool = ..., group_sys_flag: _Optional[int] = ..., consume_timeout_minute: _Optional[int] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("include_system", "after", "count_max", "prefix")
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    include_system: bool
    after: str
    count_max: int
    prefix: str
    def __init__(self, include_system: bool = ..., after: _Optional[str] = ..., count_max: _Optional[int] = ..., prefix: _Optional[str] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("consumer_group", "is_configured", "member_count", "consume_type", "message_model", "topic_count", "topics", "lag")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUME_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_MODEL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    is_configured: bool
    member_count: int
    consume_type: ConsumeType
    message_model: MessageModel
    topic_count: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    lag: int
    def __init__(self, consumer_group: _Optional[str] = ..., is_configured: bool = ..., member_count: _Optional[int] = ..., consume_type: _Optional[_Union[ConsumeType, str]] = ..., message_model: _Optional[_Union[MessageModel, str]] = ..., topic_count: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., lag: _Optional[int] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("status", "groups", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("status", "config", "member_count", "retry_message_count", "dead_letter_count", "micro_batch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETRY_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COUNT_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    config: GroupConfig
    member_count: int
    retry_message_count: int
    dead_letter_count: int
    micro_batch: MicroBatch
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., config: _Optional[_Union[GroupConfig, _Mapping]] = ..., member_count: _Optional[int] = ..., retry_message_count: _Optional[int] = ..., dead_letter_count: _Optional[int] = ..., micro_batch: _Optional[_Union[MicroBatch, _Mapping]] = ...) -> None: ...

class MicroBatch(_message.Message):
    __slots__ = ("driver_host", "commit_timestamp_ms", "message_count", "queue_count")
    DRIVER_HOST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    driver_host: str
    commit_timestamp_ms: int
    message_count: int
    queue_count: int
    def __init__(self, driver_host: _Optional[str] = ..., commit_timestamp_ms: _Optional[int] = ..., message_count: _Optional[int] = ..., queue_count: _Optional[int] = ...) -> None: ...

class ListGroupTopicsRequest(_message.Message):
    __slots__ = ("consumer_group", "after", "count_max")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    after: str
    count_max: int
    def __init__(self, consumer_group: _Optional[str] = ..., after: _Optional[str] = ..., count_max: _Optional[int] = ...) -> None: ...

class GroupTopic(_message.Message):
    __slots__ = ("topic", "is_subscribed", "queue_count", "committed_queue_count", "lag", "last_commit_timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    is_subscribed: bool
    queue_count: int
    committed_queue_count: int
    lag: int
    last_commit_timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., is_subscribed: bool = ..., queue_count: _Optional[int] = ..., committed_queue_count: _Optional[int] = ..., lag: _Optional[int] = ..., last_commit_timestamp_ms: _Optional[int] = ...) -> None: ...

class ListGroupTopicsResponse(_message.Message):
    __slots__ = ("status", "topics", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedCompositeFieldContainer[GroupTopic]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[GroupTopic, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("config", "create_only")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    config: GroupConfig
    create_only: bool
    def __init__(self, config: _Optional[_Union[GroupConfig, _Mapping]] = ..., create_only: bool = ...) -> None: ...

class UpdateGroupResponse(_message.Message):
    __slots__ = ("status", "config")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    config: GroupConfig
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., config: _Optional[_Union[GroupConfig, _Mapping]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("consumer_group", "keep_topics", "force")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    KEEP_TOPICS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    keep_topics: bool
    force: bool
    def __init__(self, consumer_group: _Optional[str] = ..., keep_topics: bool = ..., force: bool = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("status", "topics")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "queue_id", "earliest", "latest", "timestamp_ms", "offset", "force", "dry_run")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    queue_id: int
    earliest: bool
    latest: bool
    timestamp_ms: int
    offset: int
    force: bool
    dry_run: bool
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., earliest: bool = ..., latest: bool = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ..., force: bool = ..., dry_run: bool = ...) -> None: ...

class ResetOffset(_message.Message):
    __slots__ = ("queue_id", "old_offset", "new_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OLD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEW_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    old_offset: int
    new_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., old_offset: _Optional[int] = ..., new_offset: _Optional[int] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("status", "offsets")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offsets: _containers.RepeatedCompositeFieldContainer[ResetOffset]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[ResetOffset, _Mapping]]] = ...) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("after", "count_max")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    after: str
    count_max: int
    def __init__(self, after: _Optional[str] = ..., count_max: _Optional[int] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("group", "is_producer", "address", "last_update_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IS_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    is_producer: bool
    address: str
    last_update_ms: int
    def __init__(self, group: _Optional[str] = ..., is_producer: bool = ..., address: _Optional[str] = ..., last_update_ms: _Optional[int] = ...) -> None: ...

class RegisteredClient(_message.Message):
    __slots__ = ("client_id", "registrations")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    registrations: _containers.RepeatedCompositeFieldContainer[Registration]
    def __init__(self, client_id: _Optional[str] = ..., registrations: _Optional[_Iterable[_Union[Registration, _Mapping]]] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("status", "clients", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    clients: _containers.RepeatedCompositeFieldContainer[RegisteredClient]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., clients: _Optional[_Iterable[_Union[RegisteredClient, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

from rocketpy_proto.rocketpy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicConfig(_message.Message):
    __slots__ = ("topic", "read_queue_nums", "write_queue_nums", "perm", "attributes", "order", "topic_filter_type", "topic_sys_flag")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_NUMS_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_NUMS_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FILTER_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    attributes: _containers.ScalarMap[str, str]
    order: bool
    topic_filter_type: str
    topic_sys_flag: int
    def __init__(self, topic: _Optional[str] = ..., read_queue_nums: _Optional[int] = ..., write_queue_nums: _Optional[int] = ..., perm: _Optional[int] = ..., attributes: _Optional[_Mapping[str, str]] = ..., order: bool = ..., topic_filter_type: _Optional[str] = ..., topic_sys_flag: _Optional[int] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("config", "create_only")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    config: TopicConfig
    create_only: bool
    def __init__(self, config: _Optional[_Union[TopicConfig, _Mapping]] = ..., create_only: bool = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class EmptyTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class EmptyTopicResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("topics", "include_system", "after", "count_max", "prefix")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    include_system: bool
    after: str
    count_max: int
    prefix: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., include_system: bool = ..., after: _Optional[str] = ..., count_max: _Optional[int] = ..., prefix: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("status", "configs", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    configs: _containers.RepeatedCompositeFieldContainer[TopicConfig]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., configs: _Optional[_Iterable[_Union[TopicConfig, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class ListTopicGroupsRequest(_message.Message):
    __slots__ = ("topic", "after", "count_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: str
    count_max: int
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[str] = ..., count_max: _Optional[int] = ...) -> None: ...

class ListTopicGroupsResponse(_message.Message):
    __slots__ = ("status", "groups", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    groups: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., groups: _Optional[_Iterable[str]] = ..., has_more: bool = ...) -> None: ...

class ListTopicQueuesRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "count_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    count_max: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., count_max: _Optional[int] = ...) -> None: ...

class TopicQueueStatus(_message.Message):
    __slots__ = ("queue_id", "min_offset", "max_offset", "last_store_timestamp_ms")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp_ms: int
    def __init__(self, queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_store_timestamp_ms: _Optional[int] = ...) -> None: ...

class ListTopicQueuesResponse(_message.Message):
    __slots__ = ("status", "queues", "has_more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueueStatus]
    has_more: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[TopicQueueStatus, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class GetBrokerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBrokerInfoResponse(_message.Message):
    __slots__ = ("status", "version", "cluster_name", "broker_name", "broker_id", "body_bytes_max", "request_bytes_max", "flush_disk_type", "refusal", "commit_log_segment_bytes", "store_id", "delay_levels_ms", "console_port")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    FLUSH_DISK_TYPE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_MS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_PORT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    version: str
    cluster_name: str
    broker_name: str
    broker_id: int
    body_bytes_max: int
    request_bytes_max: int
    flush_disk_type: str
    refusal: str
    commit_log_segment_bytes: int
    store_id: str
    delay_levels_ms: _containers.RepeatedScalarFieldContainer[int]
    console_port: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., version: _Optional[str] = ..., cluster_name: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., body_bytes_max: _Optional[int] = ..., request_bytes_max: _Optional[int] = ..., flush_disk_type: _Optional[str] = ..., refusal: _Optional[str] = ..., commit_log_segment_bytes: _Optional[int] = ..., store_id: _Optional[str] = ..., delay_levels_ms: _Optional[_Iterable[int]] = ..., console_port: _Optional[int] = ...) -> None: ...

class GetBrokerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlaveStatus(_message.Message):
    __slots__ = ("address", "acknowledged_offset", "lag_bytes", "sent_bytes", "is_in_sync")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    address: str
    acknowledged_offset: int
    lag_bytes: int
    sent_bytes: int
    is_in_sync: bool
    def __init__(self, address: _Optional[str] = ..., acknowledged_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., is_in_sync: bool = ...) -> None: ...

class CleaningRules(_message.Message):
    __slots__ = ("reserved_ms", "hours", "local_offset_minutes", "used_ratio_max", "is_forcible", "clean_forcibly_ratio", "warning_level_ratio", "next_timestamp_ms")
    RESERVED_MS_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_OFFSET_MINUTES_FIELD_NUMBER: _ClassVar[int]
    USED_RATIO_MAX_FIELD_NUMBER: _ClassVar[int]
    IS_FORCIBLE_FIELD_NUMBER: _ClassVar[int]
    CLEAN_FORCIBLY_RATIO_FIELD_NUMBER: _ClassVar[int]
    WARNING_LEVEL_RATIO_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    reserved_ms: int
    hours: _containers.RepeatedScalarFieldContainer[int]
    local_offset_minutes: int
    used_ratio_max: float
    is_forcible: bool
    clean_forcibly_ratio: float
    warning_level_ratio: float
    next_timestamp_ms: int
    def __init__(self, reserved_ms: _Optional[int] = ..., hours: _Optional[_Iterable[int]] = ..., local_offset_minutes: _Optional[int] = ..., used_ratio_max: _Optional[float] = ..., is_forcible: bool = ..., clean_forcibly_ratio: _Optional[float] = ..., warning_level_ratio: _Optional[float] = ..., next_timestamp_ms: _Optional[int] = ...) -> None: ...

class MasterStatus(_message.Message):
    __slots__ = ("address", "connected", "log_end_offset", "lag_bytes", "synced_timestamp_ms", "failure")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYNCED_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    address: str
    connected: bool
    log_end_offset: int
    lag_bytes: int
    synced_timestamp_ms: int
    failure: str
    def __init__(self, address: _Optional[str] = ..., connected: bool = ..., log_end_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., synced_timestamp_ms: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class StoreDirectory(_message.Message):
    __slots__ = ("role", "path")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    role: str
    path: str
    def __init__(self, role: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class GetBrokerStatusResponse(_message.Message):
    __slots__ = ("status", "start_timestamp_ms", "uptime_ms", "directories", "disk_bytes", "disk_bytes_free", "topic_count", "consumer_group_count", "queue_count", "client_count", "listener_count", "connection_count", "held_call_count", "delay_level_pending_count", "timer_pending_count", "half_message_count", "recovered", "recovery_damage_count", "recovery_bytes_dropped", "quarantined_file_count", "waiting_segments", "delay_levels", "timer_due_timestamp_ms", "expired_segment_count", "broker_role", "slaves", "broker_id", "master", "cleaning")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FREE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LISTENER_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMER_PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    HALF_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_DAMAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_BYTES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITING_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    TIMER_DUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ROLE_FIELD_NUMBER: _ClassVar[int]
    SLAVES_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    CLEANING_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    start_timestamp_ms: int
    uptime_ms: int
    directories: _containers.RepeatedCompositeFieldContainer[StoreDirectory]
    disk_bytes: int
    disk_bytes_free: int
    topic_count: int
    consumer_group_count: int
    queue_count: int
    client_count: int
    listener_count: int
    connection_count: int
    held_call_count: int
    delay_level_pending_count: int
    timer_pending_count: int
    half_message_count: int
    recovered: bool
    recovery_damage_count: int
    recovery_bytes_dropped: int
    quarantined_file_count: int
    waiting_segments: _containers.RepeatedCompositeFieldContainer[WaitingSegments]
    delay_levels: _containers.RepeatedCompositeFieldContainer[DelayLevelStatus]
    timer_due_timestamp_ms: int
    expired_segment_count: int
    broker_role: str
    slaves: _containers.RepeatedCompositeFieldContainer[SlaveStatus]
    broker_id: int
    master: MasterStatus
    cleaning: CleaningRules
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., start_timestamp_ms: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[StoreDirectory, _Mapping]]] = ..., disk_bytes: _Optional[int] = ..., disk_bytes_free: _Optional[int] = ..., topic_count: _Optional[int] = ..., consumer_group_count: _Optional[int] = ..., queue_count: _Optional[int] = ..., client_count: _Optional[int] = ..., listener_count: _Optional[int] = ..., connection_count: _Optional[int] = ..., held_call_count: _Optional[int] = ..., delay_level_pending_count: _Optional[int] = ..., timer_pending_count: _Optional[int] = ..., half_message_count: _Optional[int] = ..., recovered: bool = ..., recovery_damage_count: _Optional[int] = ..., recovery_bytes_dropped: _Optional[int] = ..., quarantined_file_count: _Optional[int] = ..., waiting_segments: _Optional[_Iterable[_Union[WaitingSegments, _Mapping]]] = ..., delay_levels: _Optional[_Iterable[_Union[DelayLevelStatus, _Mapping]]] = ..., timer_due_timestamp_ms: _Optional[int] = ..., expired_segment_count: _Optional[int] = ..., broker_role: _Optional[str] = ..., slaves: _Optional[_Iterable[_Union[SlaveStatus, _Mapping]]] = ..., broker_id: _Optional[int] = ..., master: _Optional[_Union[MasterStatus, _Mapping]] = ..., cleaning: _Optional[_Union[CleaningRules, _Mapping]] = ...) -> None: ...

class DelayLevelStatus(_message.Message):
    __slots__ = ("level", "delay_ms", "pending_count", "due_timestamp_ms", "next_offset")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    level: int
    delay_ms: int
    pending_count: int
    due_timestamp_ms: int
    next_offset: int
    def __init__(self, level: _Optional[int] = ..., delay_ms: _Optional[int] = ..., pending_count: _Optional[int] = ..., due_timestamp_ms: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class QueryMessageRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_timestamp_ms", "end_timestamp_ms", "count_max", "tag", "before_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    BEFORE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_timestamp_ms: int
    end_timestamp_ms: int
    count_max: int
    tag: str
    before_offset: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_timestamp_ms: _Optional[int] = ..., end_timestamp_ms: _Optional[int] = ..., count_max: _Optional[int] = ..., tag: _Optional[str] = ..., before_offset: _Optional[int] = ...) -> None: ...

class ViewMessageRequest(_message.Message):
    __slots__ = ("offset_msg_id",)
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    def __init__(self, offset_msg_id: _Optional[str] = ...) -> None: ...

class MessagesResponse(_message.Message):
    __slots__ = ("status", "record_sizes", "records", "next_before_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_BEFORE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    record_sizes: bytes
    records: bytes
    next_before_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., record_sizes: _Optional[bytes] = ..., records: _Optional[bytes] = ..., next_before_offset: _Optional[int] = ...) -> None: ...

class GetStoreStatisticsRequest(_message.Message):
    __slots__ = ("include_system", "topics_after")
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TOPICS_AFTER_FIELD_NUMBER: _ClassVar[int]
    include_system: bool
    topics_after: str
    def __init__(self, include_system: bool = ..., topics_after: _Optional[str] = ...) -> None: ...

class TopicStatistics(_message.Message):
    __slots__ = ("topic", "put_count", "put_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    PUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    put_count: int
    put_bytes: int
    def __init__(self, topic: _Optional[str] = ..., put_count: _Optional[int] = ..., put_bytes: _Optional[int] = ...) -> None: ...

class LatencyBucket(_message.Message):
    __slots__ = ("at_most_ms", "count")
    AT_MOST_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    at_most_ms: int
    count: int
    def __init__(self, at_most_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class GetStoreStatisticsResponse(_message.Message):
    __slots__ = ("status", "topics", "put_latencies", "put_failed_count", "get_found_count", "get_miss_count", "get_message_count", "dispatch_behind_bytes", "flush_behind_bytes", "log_begin_offset", "log_end_offset", "corrupt_record_count", "has_more_topics", "staged_bytes", "staged_bytes_max", "put_tps", "get_found_tps", "get_miss_tps", "get_transferred_tps", "put_latencies_minute", "put_latency_99_ms", "put_latency_999_ms", "put_latency_max_ms", "get_latency_max_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PUT_LATENCIES_FIELD_NUMBER: _ClassVar[int]
    PUT_FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    GET_FOUND_COUNT_FIELD_NUMBER: _ClassVar[int]
    GET_MISS_COUNT_FIELD_NUMBER: _ClassVar[int]
    GET_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    PUT_TPS_FIELD_NUMBER: _ClassVar[int]
    GET_FOUND_TPS_FIELD_NUMBER: _ClassVar[int]
    GET_MISS_TPS_FIELD_NUMBER: _ClassVar[int]
    GET_TRANSFERRED_TPS_FIELD_NUMBER: _ClassVar[int]
    PUT_LATENCIES_MINUTE_FIELD_NUMBER: _ClassVar[int]
    PUT_LATENCY_99_MS_FIELD_NUMBER: _ClassVar[int]
    PUT_LATENCY_999_MS_FIELD_NUMBER: _ClassVar[int]
    PUT_LATENCY_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    GET_LATENCY_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedCompositeFieldContainer[TopicStatistics]
    put_latencies: _containers.RepeatedCompositeFieldContainer[LatencyBucket]
    put_failed_count: int
    get_found_count: int
    get_miss_count: int
    get_message_count: int
    dispatch_behind_bytes: int
    flush_behind_bytes: int
    log_begin_offset: int
    log_end_offset: int
    corrupt_record_count: int
    has_more_topics: bool
    staged_bytes: int
    staged_bytes_max: int
    put_tps: _containers.RepeatedScalarFieldContainer[float]
    get_found_tps: _containers.RepeatedScalarFieldContainer[float]
    get_miss_tps: _containers.RepeatedScalarFieldContainer[float]
    get_transferred_tps: _containers.RepeatedScalarFieldContainer[float]
    put_latencies_minute: _containers.RepeatedCompositeFieldContainer[LatencyBucket]
    put_latency_99_ms: int
    put_latency_999_ms: int
    put_latency_max_ms: int
    get_latency_max_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicStatistics, _Mapping]]] = ..., put_latencies: _Optional[_Iterable[_Union[LatencyBucket, _Mapping]]] = ..., put_failed_count: _Optional[int] = ..., get_found_count: _Optional[int] = ..., get_miss_count: _Optional[int] = ..., get_message_count: _Optional[int] = ..., dispatch_behind_bytes: _Optional[int] = ..., flush_behind_bytes: _Optional[int] = ..., log_begin_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., corrupt_record_count: _Optional[int] = ..., has_more_topics: bool = ..., staged_bytes: _Optional[int] = ..., staged_bytes_max: _Optional[int] = ..., put_tps: _Optional[_Iterable[float]] = ..., get_found_tps: _Optional[_Iterable[float]] = ..., get_miss_tps: _Optional[_Iterable[float]] = ..., get_transferred_tps: _Optional[_Iterable[float]] = ..., put_latencies_minute: _Optional[_Iterable[_Union[LatencyBucket, _Mapping]]] = ..., put_latency_99_ms: _Optional[int] = ..., put_latency_999_ms: _Optional[int] = ..., put_latency_max_ms: _Optional[int] = ..., get_latency_max_ms: _Optional[int] = ...) -> None: ...

class GetStatisticsRequest(_message.Message):
    __slots__ = ("names", "topic", "consumer_group", "include_system", "cursor", "count_max", "keys")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    topic: str
    consumer_group: str
    include_system: bool
    cursor: int
    count_max: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., topic: _Optional[str] = ..., consumer_group: _Optional[str] = ..., include_system: bool = ..., cursor: _Optional[int] = ..., count_max: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class StatisticsWindow(_message.Message):
    __slots__ = ("sum", "tps", "avgpt")
    SUM_FIELD_NUMBER: _ClassVar[int]
    TPS_FIELD_NUMBER: _ClassVar[int]
    AVGPT_FIELD_NUMBER: _ClassVar[int]
    sum: int
    tps: float
    avgpt: float
    def __init__(self, sum: _Optional[int] = ..., tps: _Optional[float] = ..., avgpt: _Optional[float] = ...) -> None: ...

class StatisticsItem(_message.Message):
    __slots__ = ("name", "key", "value", "times", "minute", "hour", "day")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MINUTE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: str
    value: int
    times: int
    minute: StatisticsWindow
    hour: StatisticsWindow
    day: StatisticsWindow
    def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[int] = ..., times: _Optional[int] = ..., minute: _Optional[_Union[StatisticsWindow, _Mapping]] = ..., hour: _Optional[_Union[StatisticsWindow, _Mapping]] = ..., day: _Optional[_Union[StatisticsWindow, _Mapping]] = ...) -> None: ...

class GetStatisticsResponse(_message.Message):
    __slots__ = ("status", "items", "next_cursor", "untracked_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    items: _containers.RepeatedCompositeFieldContainer[StatisticsItem]
    next_cursor: int
    untracked_count: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., items: _Optional[_Iterable[_Union[StatisticsItem, _Mapping]]] = ..., next_cursor: _Optional[int] = ..., untracked_count: _Optional[int] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("consumer_group", "count_max")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    count_max: int
    def __init__(self, consumer_group: _Optional[str] = ..., count_max: _Optional[int] = ...) -> None: ...

class HistoryMinute(_message.Message):
    __slots__ = ("end_timestamp_ms", "put_count", "get_count", "lag")
    END_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    GET_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    end_timestamp_ms: int
    put_count: int
    get_count: int
    lag: int
    def __init__(self, end_timestamp_ms: _Optional[int] = ..., put_count: _Optional[int] = ..., get_count: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class GroupHistory(_message.Message):
    __slots__ = ("consumer_group", "lag", "member_count", "lags")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAGS_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    lag: int
    member_count: int
    lags: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, consumer_group: _Optional[str] = ..., lag: _Optional[int] = ..., member_count: _Optional[int] = ..., lags: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupDeadLetters(_message.Message):
    __slots__ = ("consumer_group", "message_count")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    message_count: int
    def __init__(self, consumer_group: _Optional[str] = ..., message_count: _Optional[int] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("status", "put_tps", "get_tps", "minutes", "groups", "dead_letter_groups", "lag", "retry_message_count", "dead_letter_count", "lagging_group_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PUT_TPS_FIELD_NUMBER: _ClassVar[int]
    GET_TPS_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    RETRY_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAGGING_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    put_tps: float
    get_tps: float
    minutes: _containers.RepeatedCompositeFieldContainer[HistoryMinute]
    groups: _containers.RepeatedCompositeFieldContainer[GroupHistory]
    dead_letter_groups: _containers.RepeatedCompositeFieldContainer[GroupDeadLetters]
    lag: int
    retry_message_count: int
    dead_letter_count: int
    lagging_group_count: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., put_tps: _Optional[float] = ..., get_tps: _Optional[float] = ..., minutes: _Optional[_Iterable[_Union[HistoryMinute, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupHistory, _Mapping]]] = ..., dead_letter_groups: _Optional[_Iterable[_Union[GroupDeadLetters, _Mapping]]] = ..., lag: _Optional[int] = ..., retry_message_count: _Optional[int] = ..., dead_letter_count: _Optional[int] = ..., lagging_group_count: _Optional[int] = ...) -> None: ...

class CleanExpiredFilesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WaitingSegments(_message.Message):
    __slots__ = ("reason", "segment_count", "until_timestamp_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    segment_count: int
    until_timestamp_ms: int
    def __init__(self, reason: _Optional[str] = ..., segment_count: _Optional[int] = ..., until_timestamp_ms: _Optional[int] = ...) -> None: ...

class CleanExpiredFilesResponse(_message.Message):
    __slots__ = ("status", "removed_file_count", "log_begin_offset", "waiting_segments")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOG_BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WAITING_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    removed_file_count: int
    log_begin_offset: int
    waiting_segments: _containers.RepeatedCompositeFieldContainer[WaitingSegments]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., removed_file_count: _Optional[int] = ..., log_begin_offset: _Optional[int] = ..., waiting_segments: _Optional[_Iterable[_Union[WaitingSegments, _Mapping]]] = ...) -> None: ...

class CleanUnusedTopicsRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: bool = ...) -> None: ...

class CleanUnusedTopicsResponse(_message.Message):
    __slots__ = ("status", "topics")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("force", "broker_role")
    FORCE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ROLE_FIELD_NUMBER: _ClassVar[int]
    force: bool
    broker_role: str
    def __init__(self, force: bool = ..., broker_role: _Optional[str] = ...) -> None: ...

class PromoteResponse(_message.Message):
    __slots__ = ("status", "epoch", "log_end_offset", "missing_bytes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MISSING_BYTES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    epoch: int
    log_end_offset: int
    missing_bytes: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., missing_bytes: _Optional[int] = ...) -> None: ...

class BackupStoreRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackupPiece(_message.Message):
    __slots__ = ("path", "offset", "data", "file_bytes", "modified_ns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    offset: int
    data: bytes
    file_bytes: int
    modified_ns: int
    def __init__(self, path: _Optional[bytes] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., file_bytes: _Optional[int] = ..., modified_ns: _Optional[int] = ...) -> None: ...

class BackupStoreResponse(_message.Message):
    __slots__ = ("status", "is_start", "total_bytes", "log_end", "commit_log_segment_bytes", "consume_queue_file_bytes", "pieces", "is_complete")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_START_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSUME_QUEUE_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    is_start: bool
    total_bytes: int
    log_end: int
    commit_log_segment_bytes: int
    consume_queue_file_bytes: int
    pieces: _containers.RepeatedCompositeFieldContainer[BackupPiece]
    is_complete: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., is_start: bool = ..., total_bytes: _Optional[int] = ..., log_end: _Optional[int] = ..., commit_log_segment_bytes: _Optional[int] = ..., consume_queue_file_bytes: _Optional[int] = ..., pieces: _Optional[_Iterable[_Union[BackupPiece, _Mapping]]] = ..., is_complete: bool = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("access_key", "secret_key", "role", "enabled", "topic_permissions", "group_permissions", "default_topic_permission", "default_group_permission")
    class TopicPermissionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class GroupPermissionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_KEY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    GROUP_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TOPIC_PERMISSION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_GROUP_PERMISSION_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    secret_key: str
    role: str
    enabled: bool
    topic_permissions: _containers.ScalarMap[str, str]
    group_permissions: _containers.ScalarMap[str, str]
    default_topic_permission: str
    default_group_permission: str
    def __init__(self, access_key: _Optional[str] = ..., secret_key: _Optional[str] = ..., role: _Optional[str] = ..., enabled: bool = ..., topic_permissions: _Optional[_Mapping[str, str]] = ..., group_permissions: _Optional[_Mapping[str, str]] = ..., default_topic_permission: _Optional[str] = ..., default_group_permission: _Optional[str] = ...) -> None: ...

class UpdateUserRequest(_message.Message):
    __slots__ = ("user", "create")
    USER_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    user: User
    create: bool
    def __init__(self, user: _Optional[_Union[User, _Mapping]] = ..., create: bool = ...) -> None: ...

class UpdateUserResponse(_message.Message):
    __slots__ = ("status", "user")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    user: User
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., user: _Optional[_Union[User, _Mapping]] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("access_key",)
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    def __init__(self, access_key: _Optional[str] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("status", "users")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    users: _containers.RepeatedCompositeFieldContainer[User]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., users: _Optional[_Iterable[_Union[User, _Mapping]]] = ...) -> None: ...

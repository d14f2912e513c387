from rocketpy_proto.rocketpy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_STATUS_UNSPECIFIED: _ClassVar[PullStatus]
    FOUND: _ClassVar[PullStatus]
    NO_MATCHED_MESSAGE: _ClassVar[PullStatus]
    MESSAGE_WAS_REMOVING: _ClassVar[PullStatus]
    OFFSET_FOUND_NULL: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_BADLY: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_ONE: _ClassVar[PullStatus]
    OFFSET_TOO_SMALL: _ClassVar[PullStatus]
    NO_MATCHED_LOGIC_QUEUE: _ClassVar[PullStatus]
    NO_MESSAGE_IN_QUEUE: _ClassVar[PullStatus]
    OFFSET_RESET: _ClassVar[PullStatus]

class BatchOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BATCH_OUTCOME_UNSPECIFIED: _ClassVar[BatchOutcome]
    COMMITTED: _ClassVar[BatchOutcome]
    ALREADY_COMMITTED: _ClassVar[BatchOutcome]
    IN_PROGRESS: _ClassVar[BatchOutcome]
    INCOMPLETE: _ClassVar[BatchOutcome]
    NOT_COMMITTED: _ClassVar[BatchOutcome]
PULL_STATUS_UNSPECIFIED: PullStatus
FOUND: PullStatus
NO_MATCHED_MESSAGE: PullStatus
MESSAGE_WAS_REMOVING: PullStatus
OFFSET_FOUND_NULL: PullStatus
OFFSET_OVERFLOW_BADLY: PullStatus
OFFSET_OVERFLOW_ONE: PullStatus
OFFSET_TOO_SMALL: PullStatus
NO_MATCHED_LOGIC_QUEUE: PullStatus
NO_MESSAGE_IN_QUEUE: PullStatus
OFFSET_RESET: PullStatus
BATCH_OUTCOME_UNSPECIFIED: BatchOutcome
COMMITTED: BatchOutcome
ALREADY_COMMITTED: BatchOutcome
IN_PROGRESS: BatchOutcome
INCOMPLETE: BatchOutcome
NOT_COMMITTED: BatchOutcome

class AppendRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "record_sizes", "records", "default_topic", "default_topic_queue_nums", "store_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TOPIC_QUEUE_NUMS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    record_sizes: bytes
    records: bytes
    default_topic: str
    default_topic_queue_nums: int
    store_id: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., record_sizes: _Optional[bytes] = ..., records: _Optional[bytes] = ..., default_topic: _Optional[str] = ..., default_topic_queue_nums: _Optional[int] = ..., store_id: _Optional[str] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("status", "queue_id", "queue_offset", "physical_offset", "record_count", "store_timestamp_ms", "is_delayed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DELAYED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    queue_id: int
    queue_offset: int
    physical_offset: int
    record_count: int
    store_timestamp_ms: int
    is_delayed: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., is_delayed: bool = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "offset_end", "response_bytes_max", "wait_ms_max", "consumer_group", "tags_codes", "expression_type", "expression", "commit_offset", "registered_subscription", "sub_version", "class_filter", "store_id", "topic_epoch", "recovery_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_END_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODES_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SUB_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLASS_FILTER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    offset_end: int
    response_bytes_max: int
    wait_ms_max: int
    consumer_group: str
    tags_codes: _containers.RepeatedScalarFieldContainer[int]
    expression_type: str
    expression: str
    commit_offset: int
    registered_subscription: bool
    sub_version: int
    class_filter: bool
    store_id: str
    topic_epoch: int
    recovery_id: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., offset_end: _Optional[int] = ..., response_bytes_max: _Optional[int] = ..., wait_ms_max: _Optional[int] = ..., consumer_group: _Optional[str] = ..., tags_codes: _Optional[_Iterable[int]] = ..., expression_type: _Optional[str] = ..., expression: _Optional[str] = ..., commit_offset: _Optional[int] = ..., registered_subscription: bool = ..., sub_version: _Optional[int] = ..., class_filter: bool = ..., store_id: _Optional[str] = ..., topic_epoch: _Optional[int] = ..., recovery_id: _Optional[str] = ...) -> None: ...

class CheckFilterRequest(_message.Message):
    __slots__ = ("expression_type", "expression")
    EXPRESSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    expression_type: str
    expression: str
    def __init__(self, expression_type: _Optional[str] = ..., expression: _Optional[str] = ...) -> None: ...

class CheckFilterResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "pull_status", "next_offset", "min_offset", "max_offset", "suggested_broker_id", "record_sizes", "records")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PULL_STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    pull_status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    record_sizes: bytes
    records: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., pull_status: _Optional[_Union[PullStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., suggested_broker_id: _Optional[int] = ..., record_sizes: _Optional[bytes] = ..., records: _Optional[bytes] = ...) -> None: ...

class QueryOffsetsRequest(_message.Message):
    __slots__ = ("topics", "consumer_group", "topic_pattern", "wait_ms_max", "known", "store_id", "recovery_id", "hidden_queues")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_ID_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_QUEUES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    consumer_group: str
    topic_pattern: str
    wait_ms_max: int
    known: _containers.RepeatedCompositeFieldContainer[KnownOffset]
    store_id: str
    recovery_id: str
    hidden_queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., consumer_group: _Optional[str] = ..., topic_pattern: _Optional[str] = ..., wait_ms_max: _Optional[int] = ..., known: _Optional[_Iterable[_Union[KnownOffset, _Mapping]]] = ..., store_id: _Optional[str] = ..., recovery_id: _Optional[str] = ..., hidden_queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ...) -> None: ...

class KnownOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "max_offset", "topic_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    max_offset: int
    topic_epoch: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., max_offset: _Optional[int] = ..., topic_epoch: _Optional[int] = ...) -> None: ...

class QueueOffsets(_message.Message):
    __slots__ = ("queue_id", "min_offset", "max_offset", "committed_offset", "cut_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int
    cut_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., committed_offset: _Optional[int] = ..., cut_offset: _Optional[int] = ...) -> None: ...

class TopicOffsets(_message.Message):
    __slots__ = ("topic", "status", "queues", "topic_epoch", "hidden_queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    status: _common_pb2.Status
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    topic_epoch: int
    hidden_queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    def __init__(self, topic: _Optional[str] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ..., topic_epoch: _Optional[int] = ..., hidden_queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ...) -> None: ...

class QueryOffsetsResponse(_message.Message):
    __slots__ = ("status", "topics", "consumer_group_exists", "store_id", "recovery_id", "slave")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_EXISTS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_ID_FIELD_NUMBER: _ClassVar[int]
    SLAVE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedCompositeFieldContainer[TopicOffsets]
    consumer_group_exists: bool
    store_id: str
    recovery_id: str
    slave: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicOffsets, _Mapping]]] = ..., consumer_group_exists: bool = ..., store_id: _Optional[str] = ..., recovery_id: _Optional[str] = ..., slave: bool = ...) -> None: ...

class QueueTime(_message.Message):
    __slots__ = ("topic", "queue_id", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class SearchOffsetsRequest(_message.Message):
    __slots__ = ("queues", "store_id")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueTime]
    store_id: str
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueTime, _Mapping]]] = ..., store_id: _Optional[str] = ...) -> None: ...

class FoundOffset(_message.Message):
    __slots__ = ("found", "offset", "store_timestamp_ms")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    found: bool
    offset: int
    store_timestamp_ms: int
    def __init__(self, found: bool = ..., offset: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ...) -> None: ...

class SearchOffsetsResponse(_message.Message):
    __slots__ = ("status", "offsets")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offsets: _containers.RepeatedCompositeFieldContainer[FoundOffset]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[FoundOffset, _Mapping]]] = ...) -> None: ...

class TopicQueue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class QueryConsumerOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "queues", "set_zero_if_not_found")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SET_ZERO_IF_NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    set_zero_if_not_found: bool
    def __init__(self, consumer_group: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ..., set_zero_if_not_found: bool = ...) -> None: ...

class ConsumerOffset(_message.Message):
    __slots__ = ("status", "offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class QueryConsumerOffsetsResponse(_message.Message):
    __slots__ = ("status", "offsets")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumerOffset]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[ConsumerOffset, _Mapping]]] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("topic", "queue_id", "begin", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    begin: int
    end: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class FindKeysRequest(_message.Message):
    __slots__ = ("ranges", "keys", "store_id")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    keys: _containers.RepeatedScalarFieldContainer[str]
    store_id: str
    def __init__(self, ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., keys: _Optional[_Iterable[str]] = ..., store_id: _Optional[str] = ...) -> None: ...

class FindKeysResponse(_message.Message):
    __slots__ = ("status", "ranges", "range_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    range_count: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., range_count: _Optional[int] = ...) -> None: ...

class MeasureRangesRequest(_message.Message):
    __slots__ = ("ranges", "bytes_max", "store_id")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    bytes_max: int
    store_id: str
    def __init__(self, ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., bytes_max: _Optional[int] = ..., store_id: _Optional[str] = ...) -> None: ...

class MeasuredRange(_message.Message):
    __slots__ = ("end", "bytes", "offset_count", "offset_count_left", "first_bytes", "first_physical_offset")
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_COUNT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_COUNT_LEFT_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    end: int
    bytes: int
    offset_count: int
    offset_count_left: int
    first_bytes: int
    first_physical_offset: int
    def __init__(self, end: _Optional[int] = ..., bytes: _Optional[int] = ..., offset_count: _Optional[int] = ..., offset_count_left: _Optional[int] = ..., first_bytes: _Optional[int] = ..., first_physical_offset: _Optional[int] = ...) -> None: ...

class MeasureRangesResponse(_message.Message):
    __slots__ = ("status", "ranges", "goes_on")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    ranges: _containers.RepeatedCompositeFieldContainer[MeasuredRange]
    goes_on: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[MeasuredRange, _Mapping]]] = ..., goes_on: bool = ...) -> None: ...

class LimitRangesRequest(_message.Message):
    __slots__ = ("ranges", "bytes_max", "store_id")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    bytes_max: _containers.RepeatedScalarFieldContainer[int]
    store_id: str
    def __init__(self, ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., bytes_max: _Optional[_Iterable[int]] = ..., store_id: _Optional[str] = ...) -> None: ...

class LimitRangesResponse(_message.Message):
    __slots__ = ("status", "ends", "bytes", "goes_on")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    ends: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    goes_on: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., ends: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., goes_on: bool = ...) -> None: ...

class BatchJob(_message.Message):
    __slots__ = ("writer_id", "batch_id", "job_token", "is_single", "store_id")
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_SINGLE_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    writer_id: str
    batch_id: int
    job_token: int
    is_single: bool
    store_id: str
    def __init__(self, writer_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., job_token: _Optional[int] = ..., is_single: bool = ..., store_id: _Optional[str] = ...) -> None: ...

class StageBlocksRequest(_message.Message):
    __slots__ = ("job", "task", "task_token", "block_number", "topic", "queue_id", "record_sizes", "records", "is_last")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    job: BatchJob
    task: int
    task_token: int
    block_number: int
    topic: str
    queue_id: int
    record_sizes: bytes
    records: bytes
    is_last: bool
    def __init__(self, job: _Optional[_Union[BatchJob, _Mapping]] = ..., task: _Optional[int] = ..., task_token: _Optional[int] = ..., block_number: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., record_sizes: _Optional[bytes] = ..., records: _Optional[bytes] = ..., is_last: bool = ...) -> None: ...

class StageBlocksResponse(_message.Message):
    __slots__ = ("status", "block_count", "record_count", "bytes", "is_committed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    block_count: int
    record_count: int
    bytes: int
    is_committed: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., block_count: _Optional[int] = ..., record_count: _Optional[int] = ..., bytes: _Optional[int] = ..., is_committed: bool = ...) -> None: ...

class StagedTasks(_message.Message):
    __slots__ = ("task", "task_token", "block_count", "record_count", "bytes")
    TASK_FIELD_NUMBER: _ClassVar[int]
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    task: _containers.RepeatedScalarFieldContainer[int]
    task_token: _containers.RepeatedScalarFieldContainer[int]
    block_count: _containers.RepeatedScalarFieldContainer[int]
    record_count: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, task: _Optional[_Iterable[int]] = ..., task_token: _Optional[_Iterable[int]] = ..., block_count: _Optional[_Iterable[int]] = ..., record_count: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitBatchRequest(_message.Message):
    __slots__ = ("job", "tasks", "wait_ms_max")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    job: BatchJob
    tasks: StagedTasks
    wait_ms_max: int
    def __init__(self, job: _Optional[_Union[BatchJob, _Mapping]] = ..., tasks: _Optional[_Union[StagedTasks, _Mapping]] = ..., wait_ms_max: _Optional[int] = ...) -> None: ...

class QueryBatchRequest(_message.Message):
    __slots__ = ("job", "wait_ms_max")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    job: BatchJob
    wait_ms_max: int
    def __init__(self, job: _Optional[_Union[BatchJob, _Mapping]] = ..., wait_ms_max: _Optional[int] = ...) -> None: ...

class AbortBatchRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: BatchJob
    def __init__(self, job: _Optional[_Union[BatchJob, _Mapping]] = ...) -> None: ...

class AbortBatchResponse(_message.Message):
    __slots__ = ("status", "attempt_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    attempt_count: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., attempt_count: _Optional[int] = ...) -> None: ...

class BatchResponse(_message.Message):
    __slots__ = ("status", "outcome", "batch_id", "record_count", "record_count_decided", "hindrance")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_DECIDED_FIELD_NUMBER: _ClassVar[int]
    HINDRANCE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    outcome: BatchOutcome
    batch_id: int
    record_count: int
    record_count_decided: int
    hindrance: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., outcome: _Optional[_Union[BatchOutcome, str]] = ..., batch_id: _Optional[int] = ..., record_count: _Optional[int] = ..., record_count_decided: _Optional[int] = ..., hindrance: _Optional[str] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "topic_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    topic_epoch: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., topic_epoch: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "offsets", "store_id", "spark_report")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SPARK_REPORT_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    store_id: str
    spark_report: SparkReport
    def __init__(self, consumer_group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ..., store_id: _Optional[str] = ..., spark_report: _Optional[_Union[SparkReport, _Mapping]] = ...) -> None: ...

class SparkReport(_message.Message):
    __slots__ = ("token", "driver_host")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DRIVER_HOST_FIELD_NUMBER: _ClassVar[int]
    token: int
    driver_host: str
    def __init__(self, token: _Optional[int] = ..., driver_host: _Optional[str] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class RecallMessageRequest(_message.Message):
    __slots__ = ("topic", "recall_handle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recall_handle: str
    def __init__(self, topic: _Optional[str] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class RecallMessageResponse(_message.Message):
    __slots__ = ("status", "msg_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    msg_id: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., msg_id: _Optional[str] = ...) -> None: ...

"""The options of source and sink: one table, parsed once into frozen values. Holds no state.

Names follow Spark's Kafka source where a concept is the same, and RocketMQ where it is RocketMQ's.
Errors come before any job starts, and name the option, the value, and what is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.choices import Allocation, Delivery, FilterType, TimestampStrategy
from pyspark_rocketpy.options.habits import SINK_HABITS, SOURCE_HABITS
from pyspark_rocketpy.options.retrying import retry_topic
from pyspark_rocketpy.options.shared import (
    CONNECT_TIMEOUT,
    CONSUMER_GROUP,
    ENDPOINTS,
    RETRY_BACKOFF,
    RETRY_TIMES_MAX,
    SEND_TIMEOUT,
)
from pyspark_rocketpy.options.specs import (
    TOPIC_ACCEPTED,
    WRITER_CHARACTERS_MAX,
    OptionSpec,
    OptionTable,
    choice_spec,
    duration_ms,
    given_options,
    keys,
    names,
    number_spec,
    parse,
    pattern,
    switch_spec,
    tags,
    text,
    topic_name,
    unchanged,
    writer_name,
)

_TIMES_FORM = '{"topic":{"0":1767225600000}}'
_JSON_FORM = '{"topic":{"0":12,"1":-2}} (-2 earliest, -1 latest)'

SOURCE_OPTIONS = (
    ENDPOINTS,
    OptionSpec("topic", None, "a topic", "the topic to read", text),
    OptionSpec("topics", None, "topics with commas", "several topics to read", names),
    OptionSpec(
        "topicPattern",
        None,
        "a regular expression (RE2)",
        "every topic with such a name, also one that comes later",
        pattern,
    ),
    CONSUMER_GROUP,
    switch_spec(
        "withRetries",
        "false",
        "whether messages that the group sent back are read as well, from its topic `%RETRY%` + "
        "consumerGroup, which must be set",
    ),
    OptionSpec(
        "startingOffsets",
        None,
        f"earliest, latest, committed, or JSON such as {_JSON_FORM}",
        "where a new query begins; a restarted one follows its checkpoint. Queues that JSON does "
        "not name follow the default: latest in streaming, earliest in batch",
        text,
    ),
    OptionSpec(
        "endingOffsets",
        "latest",
        f"latest, or JSON such as {_JSON_FORM}",
        "where a batch ends; queues that JSON does not name end at latest. Streams refuse all "
        "options that set an end",
        text,
    ),
    number_spec(
        "startingTimestamp",
        None,
        0,
        1 << 62,
        "begin with what was stored from this time on, ms since 1970; goes before "
        "startingOffsetsByTimestamp, which goes before startingOffsets",
    ),
    OptionSpec(
        "startingOffsetsByTimestamp",
        None,
        f"JSON such as {_TIMES_FORM}",
        "the same for single queues; the others follow startingOffsets",
        text,
    ),
    choice_spec(
        "startingOffsetsByTimestampStrategy",
        TimestampStrategy,
        TimestampStrategy.ERROR.value,
        "what a queue without a message from that time on does",
    ),
    number_spec(
        "endingTimestamp",
        None,
        0,
        1 << 62,
        "end a batch before what was stored from this time on, ms since 1970, or at the end of a "
        "queue without such; goes before endingOffsetsByTimestamp, and that before endingOffsets",
    ),
    OptionSpec(
        "endingOffsetsByTimestamp",
        None,
        f"JSON such as {_TIMES_FORM}",
        "the same for single queues; the others follow endingOffsets",
        text,
    ),
    number_spec(
        "maxOffsetsPerTrigger",
        None,
        1,
        1 << 62,
        "messages in one micro-batch, at most; batches ignore all limits per trigger",
    ),
    number_spec(
        "minOffsetsPerTrigger",
        None,
        1,
        1 << 62,
        "messages that a micro-batch waits for, but not beyond maxTriggerDelay; the first one and "
        "those of AvailableNow do not wait",
    ),
    OptionSpec(
        "maxTriggerDelay",
        "15m",
        "a number with ms, s, m or h",
        "how long after the last batch fewer than minOffsetsPerTrigger messages wait",
        duration_ms,
    ),
    number_spec(
        "maxBytesPerTrigger",
        None,
        1,
        1 << 62,
        "bytes of stored records in one micro-batch, at most",
    ),
    number_spec("minPartitions", None, 1, 100_000, "tasks to read with, at least"),
    number_spec(
        "maxRecordsPerPartition", None, 1, 1 << 62, "messages that one task reads, at most"
    ),
    choice_spec(
        "allocation",
        Allocation,
        None,
        "how queues are given to tasks where there are more of them than minPartitions, or cores "
        "of the driver if that is not set (default: queues with little to read share a task)",
    ),
    OptionSpec(
        "allocationConfig",
        None,
        'JSON such as [["topic:0","topic:1"],["topic:2"]]',
        "the queues of each task, for allocation config; names every queue once",
        text,
    ),
    OptionSpec(
        "machineRooms",
        None,
        "names with commas",
        "rooms whose brokers are read, for allocation machineRoom; a broker's room is the part of "
        "its name before an @",
        names,
    ),
    OptionSpec(
        "filter",
        None,
        "TagA || TagB, or *; with filterType SQL92 a condition, such as region = 'EU'",
        "only messages with one of these tags, or whose properties meet the condition; the broker "
        "leaves out the others",
        unchanged,
    ),
    choice_spec(
        "filterType",
        FilterType,
        FilterType.TAG.value,
        "what filter is: tags, or a condition as RocketMQ's SQL92 has them",
    ),
    OptionSpec(
        "keys",
        None,
        "keys with commas",
        "only messages with one of these keys; a batch finds them by the broker's index, where "
        "they are not very many, and else the tasks leave out the others",
        keys,
    ),
    switch_spec(
        "pushDownFilters",
        "false",
        "whether Spark may hand a batch's filters to the source; needs "
        "spark.sql.python.filterPushdown.enabled",
    ),
    switch_spec("failOnDataLoss", "true", "whether lost messages fail the query"),
    switch_spec("commitOffsets", "true", "whether progress is reported to the broker"),
    OptionSpec("columns", None, "column names with commas", "the columns to read", names),
    number_spec(
        "fetchBytesMax",
        4 << 20,
        1_024,
        8 << 20,
        "bytes of one response, and of one Arrow batch's records",
    ),
    number_spec(
        "prefetchBytesMax", 32 << 20, 1_024, 64 << 20, "bytes that a task fetches ahead, at most"
    ),
    OptionSpec(
        "pollTimeout",
        "1s",
        "a number with ms, s, m or h; 0s: do not wait",
        "how long a query without new messages waits for one at the broker",
        duration_ms,
    ),
    CONNECT_TIMEOUT,
    RETRY_TIMES_MAX,
    RETRY_BACKOFF,
    number_spec(
        "pullTimeoutMs", 30_000, 100, 3_600_000, "after which a pull is restarted where it stands"
    ),
)
SINK_OPTIONS = (
    ENDPOINTS,
    OptionSpec(
        "topic", None, TOPIC_ACCEPTED, "topic of rows that name none in a column", topic_name
    ),
    choice_spec(
        "delivery",
        Delivery,
        Delivery.EXACTLY_ONCE.value,
        "what a batch that is written again does: nothing, or its messages come again",
    ),
    OptionSpec(
        "txnAppId",
        None,
        f"a name of up to {WRITER_CHARACTERS_MAX} characters",
        "who writes, for a batch that is to be written once although it is saved again; "
        "with txnVersion, as in foreachBatch",
        writer_name,
    ),
    number_spec(
        "txnVersion",
        None,
        0,
        1 << 62,
        "number of that batch; one saved again is left out, a lower one is an error",
    ),
    switch_spec(
        "idempotenceProperties",
        "false",
        "whether each message tells query, batch, partition and sequence in its properties",
    ),
    number_spec(
        "batchBytesMax",
        2 << 20,
        1_024,
        16 << 20,
        "bytes of one block; less where a segment of the broker's log is smaller",
    ),
    SEND_TIMEOUT,
    number_spec(
        "commitTimeoutMs",
        600_000,
        100,
        86_400_000,
        "how long a commit may stand still; one that gets on is waited for",
    ),
    switch_spec(
        "failOnDataLoss",
        "true",
        "whether a batch fails when the broker has lost a part of it after its commit",
    ),
    CONNECT_TIMEOUT,
    RETRY_TIMES_MAX,
    RETRY_BACKOFF,
)
_SOURCE = OptionTable(
    SOURCE_OPTIONS, SOURCE_HABITS, SINK_OPTIONS, "the sink; set it on write or writeStream"
)
_SINK = OptionTable(
    SINK_OPTIONS, SINK_HABITS, SOURCE_OPTIONS, "the source; set it on read or readStream"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options of the source; times in ms, sizes in bytes."""

    endpoints: tuple[str, ...]
    topics: tuple[str, ...]
    topic_pattern: str | None
    consumer_group: str
    # Of option withRetries: the topic of what the group sent back.
    retry_topic: str | None
    starting_offsets: str | None
    ending_offsets: str
    starting_timestamp: int | None
    starting_offsets_by_timestamp: str | None
    starting_offsets_by_timestamp_strategy: TimestampStrategy
    ending_timestamp: int | None
    ending_offsets_by_timestamp: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    allocation: Allocation | None
    allocation_config: str | None
    machine_rooms: tuple[str, ...] | None
    # Of option filter, by filterType: tags or an SQL92 expression.
    tags: tuple[str, ...] | None
    expression: str | None
    keys: tuple[str, ...] | None
    push_down_filters: bool
    fail_on_data_loss: bool
    commit_offsets: bool
    columns: tuple[str, ...] | None
    fetch_bytes_max: int
    prefetch_bytes_max: int
    poll_timeout: int
    connect_timeout_ms: int
    retry_times_max: int
    retry_backoff_ms: int
    pull_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_shared: bool = False) -> SourceOptions:
        """Shared options, as of a view, may be a sink's too. Raises OptionError."""
        values = parse(options, _SOURCE, is_shared=is_shared)
        topic, topics = values.pop("topic"), values.pop("topics")
        chosen = [kind for kind in (topic, topics, values["topic_pattern"]) if kind is not None]
        if len(chosen) != 1:
            raise OptionError("set one of the options topic, topics and topicPattern, and only one")
        values["retry_topic"] = retry_topic(
            str(values["consumer_group"]),
            is_read=bool(values.pop("with_retries")),
            is_given=CONSUMER_GROUP.name.lower() in given_options(options),
        )
        values |= _filter(values.pop("filter"), values.pop("filter_type"))
        read = topics or (() if topic is None else (topic,))
        return cls(topics=read, **values)  # type: ignore[arg-type]


def _filter(value: object, kind: object) -> dict[str, object]:
    """Fields of SourceOptions. Raises OptionError."""
    if kind is FilterType.SQL92:
        if value is None:
            raise OptionError("option filterType is SQL92, but filter is not set; set it as well")
        return {"tags": None, "expression": value}
    try:
        return {"tags": None if value is None else tags(str(value)), "expression": None}
    except ValueError as error:
        raise OptionError(
            f"option filter is {value!r}; accepted: TagA || TagB, or *; for a condition on the "
            "messages' properties set filterType to SQL92"
        ) from error


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options of the sink; times in ms, sizes in bytes."""

    endpoints: tuple[str, ...]
    topic: str | None
    delivery: Delivery
    txn_app_id: str | None
    txn_version: int | None
    idempotence_properties: bool
    batch_bytes_max: int
    send_timeout_ms: int
    commit_timeout_ms: int
    fail_on_data_loss: bool
    connect_timeout_ms: int
    retry_times_max: int
    retry_backoff_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_shared: bool = False) -> SinkOptions:
        """Shared options, as of a view, may be a source's too. Raises OptionError."""
        values = parse(options, _SINK, is_shared=is_shared)
        parsed = cls(**values)  # type: ignore[arg-type]
        if (parsed.txn_app_id is None) != (parsed.txn_version is None):
            raise OptionError("set both options txnAppId and txnVersion, or none of them")
        if parsed.txn_app_id is not None and parsed.delivery is not Delivery.EXACTLY_ONCE:
            raise OptionError("txnAppId needs option delivery to be exactly-once, its default")
        return parsed

"""Options of the source, one row each."""

from __future__ import annotations

from pyspark_rocketpy.options.choices import Allocation, FilterType, TimestampStrategy
from pyspark_rocketpy.options.clusters import ACCESS_OPTIONS, NAME_SERVER
from pyspark_rocketpy.options.shared import (
    CONNECT_TIMEOUT,
    CONSUMER_GROUP,
    ENDPOINTS,
    RETRY_BACKOFF,
    RETRY_TIMES_MAX,
)
from pyspark_rocketpy.options.specs import (
    OptionSpec,
    choice_spec,
    duration_ms,
    keys,
    names,
    number_spec,
    pattern,
    switch_spec,
    text,
    unchanged,
)
from pyspark_rocketpy.times import TIME_FORMS, zone_of

STARTING_TIMESTAMP, ENDING_TIMESTAMP = "startingTimestamp", "endingTimestamp"
_TIMES_FORM = '{"topic":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}'
_JSON_FORM = '{"topic":{"0":12,"1":-2}} (-2 earliest, -1 latest)'

SOURCE_OPTIONS = (
    ENDPOINTS,
    NAME_SERVER,
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
    OptionSpec(
        STARTING_TIMESTAMP,
        None,
        TIME_FORMS,
        "begin with what was stored from this time on; goes before startingOffsetsByTimestamp, "
        "which goes before startingOffsets",
        text,
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
    OptionSpec(
        ENDING_TIMESTAMP,
        None,
        TIME_FORMS,
        "end a batch before what was stored from this time on, or at the end of a queue without "
        "such; goes before endingOffsetsByTimestamp, and that before endingOffsets",
        text,
    ),
    OptionSpec(
        "timeZone",
        None,
        "a zone such as Europe/Berlin, or an offset such as +01:00",
        "the zone of ISO times without one (default: the driver's own, which is the session's "
        "unless spark.sql.session.timeZone is set: Spark does not give that to Python sources)",
        zone_of,
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
    number_spec(
        "pullsInFlightMax",
        64,
        1,
        1_024,
        "pulls of one queue that are under way at a cluster, at most; fewer while it is busy",
    ),
    OptionSpec(
        "brokerAbsenceTimeout",
        "10m",
        "a number with ms, s, m or h",
        "how long a broker of a cluster may be away, its queues waiting, before the query fails; "
        "with failOnDataLoss false it goes on without",
        duration_ms,
    ),
    *ACCESS_OPTIONS,
)

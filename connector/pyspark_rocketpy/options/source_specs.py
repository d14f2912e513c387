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
    duration_spec,
    keys,
    names,
    number_spec,
    pattern,
    switch_spec,
    unchanged,
)
from pyspark_rocketpy.options.tls import TLS_OPTIONS
from pyspark_rocketpy.times import TIME_FORMS, zone_of

DURATION_MS_MAX = 100 * 365 * 86_400_000
STARTING_TIMESTAMP, ENDING_TIMESTAMP = "startingTimestamp", "endingTimestamp"
_TIMES_FORM = '{"topic":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}'
_JSON_FORM = '{"topic":{"0":12,"1":-2}} (-2 earliest, -1 latest)'

SOURCE_OPTIONS = (
    ENDPOINTS,
    NAME_SERVER,
    OptionSpec("topic", None, "a topic", "the topic to read"),
    OptionSpec("topics", None, "topics separated by commas", "several topics to read", names),
    OptionSpec(
        "topicPattern",
        None,
        "a regular expression (RE2)",
        "reads all topics with a matching name, also topics that are created later",
        pattern,
    ),
    CONSUMER_GROUP,
    switch_spec(
        "includeRetryTopic",
        "false",
        "whether the group's retry topic, `%RETRY%` + consumerGroup, is read as well; "
        "consumerGroup must be set",
    ),
    OptionSpec(
        "startingOffsets",
        None,
        f"earliest, latest, committed, or JSON such as {_JSON_FORM}",
        "start of a new query; a restarted query continues from its checkpoint. Queues that the "
        "JSON does not name use the default: latest in streaming, earliest in batch",
    ),
    OptionSpec(
        "endingOffsets",
        "latest",
        f"latest, or JSON such as {_JSON_FORM}",
        "end of a batch; queues that the JSON does not name end at latest. Streams refuse all "
        "options that set an end",
    ),
    OptionSpec(
        STARTING_TIMESTAMP,
        None,
        TIME_FORMS,
        "start at the first message stored at or after this time; takes precedence over "
        "startingOffsetsByTimestamp, which takes precedence over startingOffsets",
    ),
    OptionSpec(
        "startingOffsetsByTimestamp",
        None,
        f"JSON such as {_TIMES_FORM}",
        "start times of single queues; all other queues use startingOffsets",
    ),
    choice_spec(
        "startingOffsetsByTimestampStrategy",
        TimestampStrategy,
        TimestampStrategy.ERROR.value,
        "for a queue without a message at or after its start time: fail, or start at latest",
    ),
    OptionSpec(
        ENDING_TIMESTAMP,
        None,
        TIME_FORMS,
        "end before the first message stored at or after this time; a queue without such a "
        "message is read to its end. Takes precedence over endingOffsetsByTimestamp, which takes "
        "precedence over endingOffsets",
    ),
    OptionSpec(
        "timeZone",
        None,
        "a zone such as Europe/Berlin, or an offset such as +01:00",
        "zone of ISO times without a zone (default: the driver's zone). "
        "spark.sql.session.timeZone has no effect: Spark does not pass it to Python sources",
        zone_of,
    ),
    OptionSpec(
        "endingOffsetsByTimestamp",
        None,
        f"JSON such as {_TIMES_FORM}",
        "end times of single queues; all other queues use endingOffsets",
    ),
    number_spec(
        "maxOffsetsPerTrigger",
        None,
        1,
        1 << 62,
        "maximum messages per micro-batch; batch queries ignore all limits per trigger",
    ),
    number_spec(
        "minOffsetsPerTrigger",
        None,
        1,
        1 << 62,
        "minimum messages per micro-batch, which waits for them up to maxTriggerDelay; the first "
        "micro-batch and trigger AvailableNow do not wait",
    ),
    duration_spec(
        "maxTriggerDelay",
        "15m",
        0,
        DURATION_MS_MAX,
        "longest wait for minOffsetsPerTrigger messages after the last micro-batch; then fewer are "
        "read",
    ),
    number_spec(
        "maxBytesPerTrigger",
        None,
        1,
        1 << 62,
        "maximum bytes of stored records per micro-batch",
    ),
    number_spec("minPartitions", None, 1, 100_000, "minimum number of tasks that read"),
    number_spec("maxRecordsPerPartition", None, 1, 1 << 62, "maximum messages per task"),
    choice_spec(
        "allocation",
        Allocation,
        None,
        "assignment of queues to tasks if there are more queues than minPartitions, or than "
        "cores of the driver if minPartitions is not set (default: queues with little to read "
        "share a task)",
    ),
    OptionSpec(
        "allocationConfig",
        None,
        'JSON such as [["topic:0","topic:1"],["topic:2"]]',
        "the queues of each task, for allocation config; names every queue once",
    ),
    OptionSpec(
        "machineRooms",
        None,
        "names separated by commas",
        "rooms of the brokers to read, for allocation machineRoom; a broker's room is the part "
        "of its name before an @",
        names,
    ),
    OptionSpec(
        "filter",
        None,
        "TagA || TagB, or *; with filterType SQL92 a condition, such as region = 'EU'",
        "reads only messages with one of these tags, or with properties that meet the condition; "
        "the broker filters",
        unchanged,
    ),
    choice_spec(
        "filterType",
        FilterType,
        FilterType.TAG.value,
        "kind of filter: tags, or a condition in RocketMQ's SQL92",
    ),
    OptionSpec(
        "keys",
        None,
        "keys separated by commas",
        "reads only messages with one of these keys; a batch query finds them by the broker's "
        "index if they are not very many, otherwise the tasks filter",
        keys,
    ),
    switch_spec(
        "pushDownFilters",
        "false",
        "whether Spark may push a batch query's filters down to the source; needs "
        "spark.sql.python.filterPushdown.enabled",
    ),
    switch_spec("failOnDataLoss", "true", "whether lost messages fail the query"),
    switch_spec("commitOffsets", "true", "whether progress is reported to the broker"),
    OptionSpec(
        "columns",
        None,
        "column names separated by commas, or * for all",
        "the columns to read in place of the default ones",
        names,
    ),
    number_spec(
        "fetchBytesMax",
        4 << 20,
        1_024,
        8 << 20,
        "bytes of one response, and of one Arrow batch's records",
    ),
    number_spec(
        "prefetchBytesMax", 32 << 20, 1_024, 64 << 20, "maximum bytes that a task fetches ahead"
    ),
    duration_spec(
        "pollTimeout",
        "1s",
        0,
        DURATION_MS_MAX,
        "longest wait at the broker for a new message; 0s does not wait",
    ),
    CONNECT_TIMEOUT,
    RETRY_TIMES_MAX,
    RETRY_BACKOFF,
    duration_spec(
        "pullTimeout",
        "30s",
        100,
        3_600_000,
        "timeout of a pull; it is restarted from the reached offset",
    ),
    number_spec(
        "pullsInFlightMax",
        64,
        1,
        1_024,
        "maximum concurrent pulls of one queue at a cluster; fewer while the cluster is busy",
    ),
    duration_spec(
        "brokerUnavailableTimeout",
        "10m",
        0,
        DURATION_MS_MAX,
        "longest outage of a cluster's broker before the query fails; its queues wait. With "
        "failOnDataLoss false the query continues without the broker",
    ),
    *ACCESS_OPTIONS,
    *TLS_OPTIONS,
)

"""Options of the sink, one row each."""

from __future__ import annotations

from pyspark_rocketpy.options.choices import Delivery
from pyspark_rocketpy.options.clusters import ACCESS_OPTIONS, NAME_SERVER
from pyspark_rocketpy.options.shared import (
    CONNECT_TIMEOUT,
    ENDPOINTS,
    RETRY_BACKOFF,
    RETRY_TIMES_MAX,
    SEND_TIMEOUT,
)
from pyspark_rocketpy.options.specs import (
    TOPIC_ACCEPTED,
    WRITER_CHARACTERS_MAX,
    OptionSpec,
    choice_spec,
    number_spec,
    switch_spec,
    topic_name,
    writer_name,
)

CONTROL_TOPIC, CONTROL_TOPIC_DEFAULT = "controlTopic", "rocketpy_control"

SINK_OPTIONS = (
    ENDPOINTS,
    NAME_SERVER,
    OptionSpec(
        "topic", None, TOPIC_ACCEPTED, "topic of rows that name none in a column", topic_name
    ),
    choice_spec(
        "delivery",
        Delivery,
        None,
        "what a batch that is written again does: nothing, or its messages come again (default: "
        "exactly-once with endpoints, at-least-once with nameServer)",
    ),
    OptionSpec(
        CONTROL_TOPIC,
        CONTROL_TOPIC_DEFAULT,
        TOPIC_ACCEPTED,
        "topic of markers that tasks leave for delivery effectively-once; at one broker, of which "
        "its queue 0 is used",
        topic_name,
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
    *ACCESS_OPTIONS,
)

"""Options of the sink, one row each."""

from __future__ import annotations

from pyspark_rocketpy.options.choices import DeliveryGuarantee
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
    duration_spec,
    number_spec,
    switch_spec,
    topic_name,
    writer_name,
)
from pyspark_rocketpy.options.tls import TLS_OPTIONS

CONTROL_TOPIC, CONTROL_TOPIC_DEFAULT = "controlTopic", "rocketpy_control"

SINK_OPTIONS = (
    ENDPOINTS,
    NAME_SERVER,
    OptionSpec(
        "topic", None, TOPIC_ACCEPTED, "topic of rows without a value in column topic", topic_name
    ),
    choice_spec(
        "delivery",
        DeliveryGuarantee,
        None,
        "delivery guarantee: whether a batch that is written again stores its messages again "
        "(default: exactly-once with endpoints, at-least-once with nameServer)",
    ),
    OptionSpec(
        CONTROL_TOPIC,
        CONTROL_TOPIC_DEFAULT,
        TOPIC_ACCEPTED,
        "topic of the markers that tasks write for delivery effectively-once; exactly "
        "one broker must have it; only its queue 0 is used",
        topic_name,
    ),
    OptionSpec(
        "txnAppId",
        None,
        f"a name of up to {WRITER_CHARACTERS_MAX} characters",
        "name of the writer, for a batch that may be saved again but is written once; with "
        "txnVersion, as in foreachBatch",
        writer_name,
    ),
    number_spec(
        "txnVersion",
        None,
        0,
        1 << 62,
        "number of that batch; a repeated number is skipped, a lower one is an error",
    ),
    number_spec(
        "batchBytesMax",
        2 << 20,
        1_024,
        16 << 20,
        "maximum bytes of one block; less if a segment of the broker's log is smaller",
    ),
    SEND_TIMEOUT,
    duration_spec(
        "commitTimeout",
        "10m",
        100,
        86_400_000,
        "longest time without progress before a commit fails; a commit that makes progress has no "
        "limit",
    ),
    switch_spec(
        "failOnDataLoss",
        "true",
        "whether a batch fails if the broker lost a part of it after its commit",
    ),
    CONNECT_TIMEOUT,
    RETRY_TIMES_MAX,
    RETRY_BACKOFF,
    *ACCESS_OPTIONS,
    *TLS_OPTIONS,
)

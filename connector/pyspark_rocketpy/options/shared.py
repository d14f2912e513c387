"""Options that several tables have."""

from __future__ import annotations

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, duration_spec, endpoints, group, number_spec
from rocketpy_proto import model

ENDPOINTS = OptionSpec(
    "endpoints",
    None,
    "host:port, several separated by commas",
    "addresses of one broker, tried in this order",
    endpoints,
)
CONNECT_TIMEOUT = duration_spec(
    "connectTimeout", "8s", 100, 600_000, "timeout of each attempt to reach a broker"
)
RETRY_TIMES_MAX = number_spec(
    "retryTimesMax",
    16,
    0,
    1_000,
    "maximum consecutive retries of a call after a broken connection or a busy answer",
)
RETRY_BACKOFF = duration_spec(
    "retryBackoff", "100ms", 1, 60_000, "wait before the first retry; doubles up to 5 s"
)
CONSUMER_GROUP = OptionSpec(
    "consumerGroup",
    "pyspark-rocketpy",
    "letters, digits, %, |, _ and -; up to 255",
    "consumer group of the committed offsets and the reported progress",
    group,
)
SEND_TIMEOUT = duration_spec(
    "sendTimeout", "30s", 100, 3_600_000, "timeout of the broker's acknowledgement"
)


def retry_topic(group: str, *, is_read: bool, is_given: bool) -> str | None:
    """Returns the topic of a group's retries; None if it is not read. Raises OptionError."""
    if not is_read:
        return None
    if not is_given:
        raise OptionError(
            "option includeRetryTopic is true, but consumerGroup is not set; set it to the group "
            "that sent the messages back"
        )
    return model.retry_topic(group)

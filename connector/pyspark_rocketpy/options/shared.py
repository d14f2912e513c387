"""Options that several tables have."""

from __future__ import annotations

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, endpoints, group, number_spec

# The topic of a consumer group's retries is this prefix and the group's name.
RETRY_PREFIX = "%RETRY%"
ENDPOINTS = OptionSpec(
    "endpoints",
    None,
    "host:port, or several with commas",
    "addresses of one broker, asked in this order",
    endpoints,
)
CONNECT_TIMEOUT = number_spec(
    "connectTimeoutMs", 8_000, 100, 600_000, "how long each try waits for a broker"
)
RETRY_TIMES_MAX = number_spec(
    "retryTimesMax",
    16,
    0,
    1_000,
    "how often in a row a call that broke, or met a busy broker, is tried again",
)
RETRY_BACKOFF = number_spec(
    "retryBackoffMs", 100, 1, 60_000, "wait before the first retry; doubles up to 5 s"
)
CONSUMER_GROUP = OptionSpec(
    "consumerGroup",
    "pyspark-rocketpy",
    "letters, digits, %, |, _ and -; up to 255",
    "group under which offsets are kept and progress is reported",
    group,
)
SEND_TIMEOUT = number_spec(
    "sendTimeoutMs", 30_000, 100, 3_600_000, "how long an acknowledgement is waited for"
)


def retry_topic(group: str, *, is_read: bool, is_given: bool) -> str | None:
    """Returns the topic of a group's retries; None if it is not read. Raises OptionError."""
    if not is_read:
        return None
    if not is_given:
        raise OptionError(
            "option withRetries is true, but consumerGroup is not set; set it to the group whose "
            "messages are sent back"
        )
    return RETRY_PREFIX + group

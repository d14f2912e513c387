"""Options of `send_back`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.clusters import ACCESS_OPTIONS, check_user
from pyspark_rocketpy.options.foreign_names import SOURCE_FOREIGN_NAMES
from pyspark_rocketpy.options.shared import (
    CONNECT_TIMEOUT,
    CONSUMER_GROUP,
    ENDPOINTS,
    RETRY_BACKOFF,
    RETRY_TIMES_MAX,
    SEND_TIMEOUT,
)
from pyspark_rocketpy.options.specs import (
    OptionSpec,
    OptionTable,
    given_options,
    number_spec,
    parse,
)
from pyspark_rocketpy.options.tls import TLS_OPTIONS, tls_of
from rocketpy_proto.tls import TlsConfig

LEVEL_MIN, LEVEL_MAX = -1, 18
RETRY_OPTIONS = (
    ENDPOINTS,
    replace(CONSUMER_GROUP, default=None, meaning="the group that could not consume the messages"),
    OptionSpec(
        "delayLevel",
        "0",
        f"{LEVEL_MIN} to {LEVEL_MAX}, or the name of a column of whole numbers",
        "delay before redelivery: 0 depends on the number of failures, 1 to 18 is a delay level, "
        "-1 gives the message up at once",
    ),
    number_spec(
        "maxReconsumeTimes",
        None,
        0,
        (1 << 31) - 1,
        "maximum redeliveries before a message is given up (default: the group's own, 16)",
    ),
    SEND_TIMEOUT,
    CONNECT_TIMEOUT,
    RETRY_TIMES_MAX,
    RETRY_BACKOFF,
    *ACCESS_OPTIONS,
    *TLS_OPTIONS,
)
_NO_CLUSTER = "use endpoints; only a broker of rocketpy takes messages back"
_TABLE = OptionTable(RETRY_OPTIONS, {**SOURCE_FOREIGN_NAMES, "nameserver": _NO_CLUSTER}, (), "")


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Checked options of `send_back`; times in ms."""

    endpoints: tuple[str, ...]
    access_key: str | None
    secret_key: str | None = field(repr=False)
    tls: TlsConfig | None
    consumer_group: str
    # A level for all rows, or the column with each row's level.
    delay_level: int | str
    max_reconsume_times: int | None
    send_timeout_ms: int
    connect_timeout_ms: int
    retry_times_max: int
    retry_backoff_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> RetryOptions:
        """Returns the options of a call's keywords; None means not set. Raises OptionError."""
        texts = {name: str(value) for name, value in options.items() if value is not None}
        values = parse(texts, _TABLE, is_shared=False)
        values["tls"] = tls_of(values, given_options(texts))
        if values["consumer_group"] is None:
            raise OptionError(
                "option consumerGroup is missing; set it to the group that consumes the messages"
            )
        check_user(values)
        del values["security_token"]
        values["delay_level"] = _level(str(values["delay_level"]))
        return cls(**values)  # type: ignore[arg-type]


def _level(value: str) -> int | str:
    try:
        level = int(value)
    except ValueError:
        return value
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        raise OptionError(
            f"option delayLevel is {level}; accepted: {LEVEL_MIN} to {LEVEL_MAX}, or the name of a "
            "column of whole numbers"
        )
    return level

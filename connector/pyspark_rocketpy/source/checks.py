"""What the source's options must satisfy, checked before any job. Holds no state.

A broker is asked for an SQL92 expression alone: it is the one to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan import allocation, boundaries

if TYPE_CHECKING:
    from pyspark_rocketpy.transport.interface import OffsetQueries

REPORTING_OPTION = "commitOffsets"
BATCH_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def check(options: SourceOptions) -> None:
    """Raises OptionError, OffsetError."""
    boundaries.starting(options, boundaries.EARLIEST_NAME)
    boundaries.ending(options)
    allocation.check(options)
    count_min, count_max = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if count_min is not None and count_max is not None and count_min > count_max:
        raise OptionError(
            f"option minOffsetsPerTrigger is {count_min}, more than maxOffsetsPerTrigger, "
            f"{count_max}; change one of them"
        )


def check_expression(expression: str, queries: OffsetQueries) -> None:
    """Raises OptionError for an SQL92 expression that the broker cannot read.

    Raises ConnectionFailedError, BrokerError.
    """
    fault = queries.expression_fault(expression)
    if fault is not None:
        raise OptionError(f"option filter is no SQL92 expression: {fault}")


def refuse_stream_options(options: Mapping[str, str]) -> None:
    """A batch reports no progress. Raises OptionError where that is asked for.

    Limits per trigger are passed over, as by Spark's Kafka source: a batch reads all the same.
    """
    given = {name.lower(): value.strip().lower() for name, value in options.items()}
    if given.get(REPORTING_OPTION.lower()) == "true":
        raise OptionError(
            f"option {REPORTING_OPTION} is true, but a batch reports no progress; leave it out, or "
            "read with readStream and trigger availableNow"
        )


def refuse_batch_options(names: Iterable[str]) -> None:
    """A stream has no end. Raises OptionError for an option that sets one."""
    given = {name.lower() for name in names}
    for option in BATCH_OPTIONS:
        if option.lower() in given:
            raise OptionError(f"option {option} ends a batch, but this is a stream; leave it out")

"""Checks of the source's options, before any job.

Only an SQL92 expression needs a request to a broker, which parses it.
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
    """Raises OptionError or OffsetError for wrong or contradictory options, without a broker."""
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
    """Raises OptionError for an SQL92 expression that the broker cannot parse.

    Raises ConnectionFailedError, BrokerError.
    """
    fault = queries.expression_fault(expression)
    if fault is not None:
        raise OptionError(f"option filter is not an SQL92 expression: {fault}")


def refuse_stream_options(options: Mapping[str, str]) -> None:
    """Raises OptionError for commitOffsets true in a batch, since batches report no progress.

    Limits per trigger are ignored, as by Spark's Kafka source.
    """
    given = {name.lower(): value.strip().lower() for name, value in options.items()}
    if given.get(REPORTING_OPTION.lower()) == "true":
        raise OptionError(
            f"option {REPORTING_OPTION} is true, but a batch reports no progress; leave it out, or "
            "read with readStream and trigger availableNow"
        )


def refuse_batch_options(names: Iterable[str]) -> None:
    """Raises OptionError for an option that sets an end, since a stream has none."""
    given = {name.lower() for name in names}
    for option in BATCH_OPTIONS:
        if option.lower() in given:
            raise OptionError(f"option {option} ends a batch, but this is a stream; leave it out")

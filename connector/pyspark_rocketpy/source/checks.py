"""What the source's options must satisfy together, checked before any job and without a broker.

Holds no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.parsing import SourceOptions
from pyspark_rocketpy.source import allocation, boundaries

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

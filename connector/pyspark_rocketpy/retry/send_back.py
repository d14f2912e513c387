"""Send-back of a DataFrame's rows to their broker, in tasks.

A row is a message that was read. Its position in the broker's log names it, so no body is sent.
Spark runs a failed task again, which sends all its rows again. Rows that the failed task had sent
are delivered twice, and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions
from pyspark.sql.types import IntegralType

from pyspark_rocketpy.errors import ColumnError, OptionError
from pyspark_rocketpy.options.retry_options import RetryOptions
from pyspark_rocketpy.spark_calls import function_called_by_spark
from pyspark_rocketpy.transport.write_values import MessageToSendBack, SentBack
from rocketpy_proto.record import decode_offset_message_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_rocketpy.transport.interface import RetryTransport

OFFSET, OFFSET_ID, TOPIC, LEVEL = "commitLogOffset", "offsetMsgId", "topic", "delayLevel"
_COUNTS = "retries long, deadLetters long, dropped long"
_COUNTS_SCHEMA = pa.schema([(name.split()[0], pa.int64()) for name in _COUNTS.split(", ")])


def send_back(frame: DataFrame, options: RetryOptions, transport: RetryTransport) -> SentBack:
    """Sends all rows back and returns the counts.

    Raises OptionError, ColumnError, and in tasks the transport's errors.
    """
    chosen = _chosen(frame, options.delay_level)
    task = _task(transport, options.consumer_group, options.max_reconsume_times)
    total = SentBack()
    for row in chosen.mapInArrow(task, _COUNTS).collect():
        total += SentBack(*row)
    return total


def _chosen(frame: DataFrame, delay_level: int | str) -> DataFrame:
    """Returns the needed columns, and the level of each row. Raises OptionError, ColumnError."""
    if frame.isStreaming:
        raise OptionError("send_back takes no streaming DataFrame; call it in foreachBatch")
    if TOPIC not in frame.columns:
        raise ColumnError(f"column {TOPIC!r} is missing; keep it in the rows that were read")
    places = [name for name in (OFFSET, OFFSET_ID) if name in frame.columns]
    if not places:
        raise ColumnError(
            f"columns {OFFSET!r} and {OFFSET_ID!r} are missing, one of them is needed to find "
            "the messages; keep it in the rows that were read"
        )
    if isinstance(delay_level, int):
        level = functions.lit(delay_level)
    else:
        if delay_level not in frame.columns:
            raise ColumnError(
                f"option delayLevel is {delay_level!r}, but no column has that name; accepted: "
                "-1 to 18, or the name of a column of whole numbers"
            )
        kind = frame.schema[delay_level].dataType
        if not isinstance(kind, IntegralType):
            raise ColumnError(
                f"column {delay_level!r}, which option delayLevel names, has type "
                f"{kind.simpleString()}; cast it to int"
            )
        level = functions.col(f"`{delay_level}`")
    return frame.select(TOPIC, *places, level.cast("long").alias(LEVEL))


def _task(
    transport: RetryTransport, group: str, reconsume_times_max: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function that each task runs; it yields the counts of each batch."""

    @function_called_by_spark
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            sent = transport.send_back(group, messages_of(batch), reconsume_times_max)
            counts = (sent.retries, sent.dead_letters, sent.dropped)
            arrays = [pa.array([count], pa.int64()) for count in counts]
            yield pa.RecordBatch.from_arrays(arrays, schema=_COUNTS_SCHEMA)

    return run


def messages_of(batch: pa.RecordBatch) -> list[MessageToSendBack]:
    """Returns the messages that rows name. Raises ColumnError."""
    for name in batch.schema.names:
        column = batch.column(name)
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise ColumnError(f"column {name!r} is null in row {row} of a batch; fill it")
    levels = batch.column(LEVEL)
    beyond = pc.filter(levels, pc.or_(pc.less(levels, -1), pc.greater(levels, 18)))
    if len(beyond):
        raise ColumnError(f"a row's delayLevel is {beyond[0].as_py()}; accepted: -1 to 18")
    ids = batch.column(OFFSET_ID).to_pylist() if OFFSET_ID in batch.schema.names else None
    if OFFSET in batch.schema.names:
        offsets = batch.column(OFFSET).to_pylist()
    else:
        offsets = [_offset_in(each) for each in ids or []]
    topics = batch.column(TOPIC).to_pylist()
    ids = ids or [""] * batch.num_rows
    return [
        MessageToSendBack(*fields)
        for fields in zip(offsets, levels.to_pylist(), topics, ids, strict=True)
    ]


def _offset_in(offset_msg_id: str) -> int:
    try:
        return decode_offset_message_id(offset_msg_id)[1]
    except ValueError as error:
        raise ColumnError(
            f"column {OFFSET_ID!r} holds {offset_msg_id!r}, which the source did not write; pass "
            "the source's column unchanged"
        ) from error

"""pyspark_rocketpy: the Spark data source `rocketpy` for RocketMQ.

PySpark finds `DefaultSource` by this package's name, in every process that it starts. So the import
stays light: no gRPC, PyArrow or NumPy, and never a session. Spark starts the importing Python if
the import comes before the session (see `choose_python`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.interpreter import choose_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_rocketpy.transport.write_values import SentBack

choose_python()

__all__ = ["DefaultSource", "register", "send_back"]


def register(spark: SparkSession) -> None:
    """Registers the format `rocketpy` with a session.

    A program needs it only if PySpark does not find installed packages, as with `spark.addPyFile`.
    """
    spark.dataSource.register(DefaultSource)


def send_back(
    df: DataFrame,
    *,
    endpoints: str,
    consumerGroup: str,
    delayLevel: int | str = 0,
    maxReconsumeTimes: int | None = None,
    **options: object,
) -> SentBack:
    """Sends messages back that a group could not consume; returns counts of the results.

    `df` is a batch, or the DataFrame of `foreachBatch`. Its rows name messages by the source's
    columns `topic`, and `commitLogOffset` or `offsetMsgId`. Other columns are ignored.

    - `endpoints`: host:port of the broker; several addresses of one broker with commas.
    - `consumerGroup`: the group that receives them again, in its topic `%RETRY%` + group.
    - `delayLevel`: time of redelivery. 0 depends on a message's failures, 1 is 1 s, 18 is 2 h. -1
      makes it a dead letter at once. A column's name means a level for each row.
    - `maxReconsumeTimes`: failures after which a message becomes a dead letter; None is the
      group's own maximum, 16.
    - `options`: `sendTimeout`, `connectTimeout`, `retryTimesMax`, `retryBackoff`.

    Sent messages are durable when it returns. A task that Spark runs again sends its rows again.
    Raises OptionError, ColumnError; in tasks, through Spark, ConnectionFailedError, BrokerError.
    """
    from pyspark_rocketpy.options.retry_options import RetryOptions
    from pyspark_rocketpy.retry import send_back
    from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport

    named = {
        "endpoints": endpoints,
        "consumerGroup": consumerGroup,
        "delayLevel": delayLevel,
        "maxReconsumeTimes": maxReconsumeTimes,
    }
    parsed = RetryOptions.parse({**options, **named})
    return send_back.send_back(df, parsed, GrpcTransport.of_retry(parsed))

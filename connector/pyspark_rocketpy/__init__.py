"""pyspark_rocketpy: the Spark data source `rocketpy` for RocketMQ.

PySpark finds `DefaultSource` by this package's name, in every process it starts, so importing
stays light: no gRPC, PyArrow or NumPy here, and never a session. Imported before the session, it
lets Spark start the Python that imports it (see `python_choice`). Holds no state.
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
    """Makes the format `rocketpy` known to a session by hand.

    It is needed only where PySpark does not find installed packages, as with `spark.addPyFile`.
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
    """Sends messages back that a group could not consume; return how many come again.

    `df` is a batch, or what `foreachBatch` hands over. Its rows name messages by the source's
    columns `topic`, and `commitLogOffset` or `offsetMsgId`; no other column is looked at.

    - `endpoints`: host:port of the broker; several addresses of one broker with commas.
    - `consumerGroup`: the group that gets them again, in its topic `%RETRY%` + group.
    - `delayLevel`: when. 0 goes by how often a message has failed, 1 is 1 s, 18 is 2 h; -1 makes it
      a dead letter at once. The name of a column stands for a level of each row's own.
    - `maxReconsumeTimes`: failures after which a message becomes a dead letter; None is the
      group's own maximum, 16.
    - `options`: `sendTimeoutMs`, `connectTimeoutMs`, `retryTimesMax`, `retryBackoffMs`.

    What it has sent is durable when it returns. A task that Spark runs again sends its rows again.
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

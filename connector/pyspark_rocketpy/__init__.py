"""pyspark_rocketpy: the Spark data source `rocketpy` for RocketMQ.

PySpark finds `DefaultSource` by this package's name, in every process it starts, so importing
stays light: no gRPC, PyArrow or NumPy here, and never a session. Imported before the session, it
lets Spark start the Python that imports it (see `python_choice`). Holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.python_choice import choose_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_rocketpy.transport.writing_values import SentBack

choose_python()

__all__ = ["DefaultSource", "register", "send_back"]


def register(spark: SparkSession) -> None:
    """Make the format known by hand, where PySpark cannot find it (with `addPyFile`)."""
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
    """Send messages back that the rows of a batch name, to come again or to be given up.

    Rows need the source's columns `topic`, and `commitLogOffset` or `offsetMsgId`. `delayLevel` is
    a level for all rows, or the name of a column. Further options are those of docs/source.md.
    Durable when it returns; a task that Spark runs again sends its rows again. Raises OptionError,
    ColumnError; in tasks, through Spark, ConnectionFailedError, BrokerError.
    """
    from pyspark_rocketpy.options.retrying import RetryOptions
    from pyspark_rocketpy.retry import sending_back
    from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport

    named = {
        "endpoints": endpoints,
        "consumerGroup": consumerGroup,
        "delayLevel": delayLevel,
        "maxReconsumeTimes": maxReconsumeTimes,
    }
    parsed = RetryOptions.parse({**options, **named})
    return sending_back.send_back(df, parsed, GrpcTransport.of_retry(parsed))

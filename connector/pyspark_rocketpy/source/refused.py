"""Streaming reader that only raises an error.

If `streamReader` itself raises, PySpark's source process fails in its own clean-up and ends with an
error of its own. So this reader raises the connector's error at the first call, which follows at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.offsets import Offset
from pyspark_rocketpy.spark_calls import called_by_spark

if TYPE_CHECKING:  # An old PySpark without this module is refused here too.
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


@called_by_spark
class RefusedStreamReader(DataSourceStreamReader):
    """A reader that raises its error at any call."""

    def __init__(self, error: RocketpyError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> Offset:
        """Raises the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the error."""
        self._refuse()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002
        """Raises the error."""
        self._refuse()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002
        """Raises the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raises the error."""
        self._refuse()

"""A streaming reader that only says why there is none. Holds no state but the error.

Where `streamReader` itself raises, PySpark's source process stumbles over its own clean-up and
ends with an error of its own. So what is wrong is told at the first call, which follows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.offsets import Offset
from pyspark_rocketpy.tracebacks import hide_tracebacks

if TYPE_CHECKING:  # A PySpark that is too old to have it is refused here too.
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


@hide_tracebacks
class RefusedStreamReader(DataSourceStreamReader):
    """Raises its error whatever Spark asks first."""

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

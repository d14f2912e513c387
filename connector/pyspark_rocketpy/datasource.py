"""`DefaultSource`: what PySpark finds and asks for readers and writers. Holds no state.

Heavy modules are imported where they are needed, for Spark imports this one in every process.
Source: spec/spark_python_datasource.md sections 1, 8 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

from pyspark_rocketpy.errors import ColumnError, OptionError, VersionError

try:
    from pyspark.sql.datasource import DataSource
except ModuleNotFoundError as error:  # It came with PySpark 4.0.
    raise VersionError.of(pyspark.__version__) from error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_rocketpy.options import SinkOptions, SourceOptions
    from pyspark_rocketpy.sink import RocketpyStreamWriter, RocketpyWriter
    from pyspark_rocketpy.sink_columns import SinkColumns
    from pyspark_rocketpy.source import RocketpyBatchReader, RocketpyStreamReader

FORMAT = "rocketpy"
PYSPARK_MIN = (4, 2)


class DefaultSource(DataSource):
    """Format `rocketpy`: RocketMQ topics as streams and batches, to read and to write."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns, or those of option `columns`. Checks the options, so that load() fails."""
        from pyspark_rocketpy.columns import source_schema

        return source_schema(self._source_options().columns)

    def _source_options(self) -> SourceOptions:
        _check_version()
        from pyspark_rocketpy import source_checks
        from pyspark_rocketpy.options import SourceOptions

        options = SourceOptions.parse(self.options)
        source_checks.check(options)
        return options

    def _read_schema(self, schema: StructType) -> StructType:
        from pyspark_rocketpy.columns import check_schema

        check_schema(schema)
        return schema

    def reader(self, schema: StructType) -> RocketpyBatchReader:
        """A batch reader. Raises OptionError, ColumnError."""
        _check_version()
        from pyspark_rocketpy.source import RocketpyBatchReader, RocketpyPushDownReader

        options = self._source_options()
        kind = RocketpyPushDownReader if options.push_down_filters else RocketpyBatchReader
        return kind(options, self._read_schema(schema))

    def streamReader(self, schema: StructType) -> RocketpyStreamReader:
        """A streaming reader. Raises OptionError, ColumnError."""
        _check_version()
        from pyspark_rocketpy.source import RocketpyStreamReader
        from pyspark_rocketpy.source_checks import refuse_batch_options

        refuse_batch_options(self.options)
        return RocketpyStreamReader(self._source_options(), self._read_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> RocketpyWriter:
        """A batch writer. Raises OptionError, ColumnError."""
        _check_version()
        from pyspark_rocketpy.sink import RocketpyWriter

        if overwrite:
            raise OptionError('mode "overwrite" is not accepted, a topic only grows; use "append"')
        return RocketpyWriter(*self._sink_plan(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RocketpyStreamWriter:
        """A streaming writer. Raises OptionError, ColumnError."""
        _check_version()
        from pyspark_rocketpy.sink import RocketpyStreamWriter

        if overwrite:
            raise OptionError(
                'outputMode "complete" is not accepted, a topic only grows; use "append"'
            )
        return RocketpyStreamWriter(*self._sink_plan(schema))

    def _sink_plan(self, schema: StructType) -> tuple[SinkOptions, SinkColumns]:
        _check_version()
        from pyspark_rocketpy.options import SinkOptions
        from pyspark_rocketpy.sink_columns import SinkColumns

        options = SinkOptions.parse(self.options)
        columns = SinkColumns.check(schema)
        if options.topic is None and "topic" not in columns.names:
            raise ColumnError("no topic: set option topic, or give the rows a column topic")
        return options, columns


def _check_version() -> None:
    """Before the modules that need a new PySpark to be imported. Raises VersionError."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < PYSPARK_MIN:
        raise VersionError.of(pyspark.__version__)

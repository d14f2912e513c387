"""`DefaultSource`: the factory of readers and writers that PySpark finds.

Spark imports this module in every process, so heavy modules are imported in its methods. Source:
docs/design/spark_python_datasource.md sections 1, 8 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import pyspark
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "PySpark is missing; install it with: pip install 'pyspark-rocketpy[spark]'",
        name=error.name,
    ) from None

from pyspark_rocketpy.errors import ColumnError, OptionError, RocketpyError, VersionError
from pyspark_rocketpy.imports import importing_much
from pyspark_rocketpy.options.specs import FORMAT
from pyspark_rocketpy.spark_calls import called_by_spark

try:
    from pyspark.sql.datasource import DataSource
except ModuleNotFoundError as error:  # New in PySpark 4.0.
    raise VersionError.of(pyspark.__version__) from error

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pyspark_rocketpy.options.values import SinkOptions, SourceOptions
    from pyspark_rocketpy.sink.writers import RocketpyStreamWriter, RocketpyWriter, SinkPlan
    from pyspark_rocketpy.source.readers import RocketpyBatchReader
    from pyspark_rocketpy.transport.interface import SinkTransport, SourceTransport

PYSPARK_MIN = (4, 2)


@called_by_spark
class DefaultSource(DataSource):
    """Format `rocketpy`: RocketMQ topics as streams and batches, to read and to write.

    Spark creates it and calls its methods; programs name the format. `register` passes the class.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(...)`: `rocketpy`."""
        return FORMAT

    def schema(self) -> StructType:
        """Returns the default columns, or the columns of option `columns`.

        Checks the options, so that a wrong one fails at `load()`. Raises OptionError. The broker
        parses a SQL92 filter; ConnectionFailedError and BrokerError are raised for it as well.
        """
        with importing_much():
            from pyspark_rocketpy.source.columns import source_schema

        return source_schema(self._source_options(is_shared=True).columns)

    def _source_options(self, *, is_shared: bool) -> SourceOptions:
        _check_version()
        with importing_much():
            from pyspark_rocketpy.options.values import SourceOptions
            from pyspark_rocketpy.source import checks

        options = SourceOptions.parse(self.options, is_shared=is_shared)
        checks.check(options)
        if options.expression is not None:
            queries = _source_transport(options).offset_queries()
            checks.check_expression(options.expression, queries)
        return options

    def _read_schema(self, schema: StructType) -> StructType:
        from pyspark_rocketpy.source.columns import check_schema

        check_schema(schema)
        return schema

    def reader(self, schema: StructType) -> RocketpyBatchReader:
        """Returns a batch reader. Raises OptionError, ColumnError."""
        _check_version()
        with importing_much():
            from pyspark_rocketpy.source.checks import refuse_stream_options
            from pyspark_rocketpy.source.readers import RocketpyBatchReader, RocketpyPushDownReader

        refuse_stream_options(self.options)
        options = self._source_options(is_shared=True)
        kind = RocketpyPushDownReader if options.push_down_filters else RocketpyBatchReader
        return kind(options, self._read_schema(schema), _source_transport(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns a streaming reader, or one that raises OptionError or ColumnError when used."""
        try:
            return self._stream_reader(schema)
        except RocketpyError as error:
            from pyspark_rocketpy.source.refused import RefusedStreamReader

            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        _check_version()
        with importing_much():
            from pyspark_rocketpy.source.checks import refuse_batch_options
            from pyspark_rocketpy.source.readers import RocketpyStreamReader

        refuse_batch_options(self.options)
        options = self._source_options(is_shared=False)
        return RocketpyStreamReader(options, self._read_schema(schema), _source_transport(options))

    def writer(self, schema: StructType, overwrite: bool) -> RocketpyWriter:
        """Returns a batch writer. Raises OptionError, ColumnError."""
        _check_version()
        with importing_much():
            from pyspark_rocketpy.sink.writers import RocketpyWriter

        if overwrite:
            raise OptionError(
                'mode "overwrite" is not supported, a topic is append-only; use "append"'
            )
        return RocketpyWriter(self._sink_plan(schema, is_shared=True))

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 (PySpark's; set in output mode complete)
    ) -> RocketpyStreamWriter:
        """Returns a streaming writer. Raises OptionError, ColumnError.

        In output mode complete, Spark writes the whole result each time, as new messages.
        """
        _check_version()
        with importing_much():
            from pyspark_rocketpy.sink.writers import RocketpyStreamWriter

        return RocketpyStreamWriter(self._sink_plan(schema))

    def _sink_plan(self, schema: StructType, *, is_shared: bool = False) -> SinkPlan:
        _check_version()
        with importing_much():
            from pyspark_rocketpy.options.values import SinkOptions
            from pyspark_rocketpy.sink.columns import SinkColumns
            from pyspark_rocketpy.sink.writers import SinkPlan

        options = SinkOptions.parse(self.options, is_shared=is_shared)
        columns = SinkColumns.check(schema)
        if options.topic is None and "topic" not in columns.names:
            raise ColumnError("option topic is missing; set it, or add column topic to the rows")
        return SinkPlan(options, columns, _sink_transport(options, is_single=is_shared))


def _source_transport(options: SourceOptions) -> SourceTransport:
    """Returns the transport to the broker or cluster that the options name."""
    if options.cluster is not None:
        with importing_much():
            from pyspark_rocketpy.transport.remoting.source import RemotingSource

        return RemotingSource.of_source(options)
    from pyspark_rocketpy.transport.grpc_v1.source import GrpcSource

    return GrpcSource.of_source(options)


def _sink_transport(options: SinkOptions, *, is_single: bool) -> SinkTransport:
    """Returns the transport to the broker or cluster that the options name.

    The transport to a cluster has sent it a first request.
    """
    if options.cluster is None:
        with importing_much():
            from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport

        return GrpcTransport.of_sink(options)
    with importing_much():
        from pyspark_rocketpy.transport.remoting.sink import RemotingTransport

    return RemotingTransport.of_sink(options).prepared(options.topic, is_single=is_single)


def _check_version() -> None:
    """Raises VersionError; runs before modules that need a new PySpark are imported."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < PYSPARK_MIN:
        raise VersionError.of(pyspark.__version__)

"""The column brokerName, which is not part of a record."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import pyarrow as pa
import pytest

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.columns import BROKER_NAME, arrow_schema, source_schema
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.interface import SourceTransport
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.values import PullOptions
from tests.unit.connector.transport.grpc_v1.scripted_pulls import stored


class OneAnswer:
    """A transport with three messages in every range."""

    def pull(self, part: QueueRange, _options: PullOptions) -> Generator[RecordChunk]:
        block = stored(part.begin, [b"a", b"b", b"c"])
        yield RecordChunk(part.begin, part.end, block.data.data, block.sizes)


@pytest.mark.parametrize(
    "columns", [None, ("*",), (BROKER_NAME,), ("body", BROKER_NAME), ("body",)]
)
def test_rows_tell_the_broker_of_their_queue(columns: tuple[str, ...] | None) -> None:
    schema = arrow_schema(source_schema(columns))
    ranges = (QueueRange("T", 0, 5, 8, broker_name="broker-a"), QueueRange("T", 0, 0, 3))
    pull = PullOptions("g", 1 << 20, fail_on_data_loss=True)
    transport = cast("SourceTransport", OneAnswer())
    config = ReadConfig(transport, pull, MessageFilter(None, None, None), "broker-b")
    table = pa.Table.from_batches(read_ranges(config, ranges, schema))
    assert table.schema == schema
    assert len(table) == 6
    if BROKER_NAME in schema.names:
        assert table.column(BROKER_NAME).to_pylist() == ["broker-a"] * 3 + ["broker-b"] * 3

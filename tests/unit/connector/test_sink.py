"""The writers without Spark: what they commit, and what they refuse."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketpy.batches import BatchName, PreparedBlocks
from pyspark_rocketpy.errors import CommitError, OptionError
from pyspark_rocketpy.options import SinkOptions
from pyspark_rocketpy.sink import RocketpyStreamWriter, RocketpyWriter, RowsWritten
from pyspark_rocketpy.sink_columns import SinkColumns
from tests.unit.connector.scripted_broker import ScriptedBroker

COLUMNS = SinkColumns.check(StructType([StructField("Body", StringType())]))
BATCH = pa.record_batch({"Body": pa.array(["a", "b"])})


def options(broker: ScriptedBroker, **more: str) -> SinkOptions:
    return SinkOptions.parse({"endpoints": broker.config.endpoints[0], "topic": "T", **more})


def save(broker: ScriptedBroker, **more: str) -> None:
    """What Spark does with two tasks: each has a copy of the writer."""
    writer = RocketpyWriter(options(broker, **more), COLUMNS)
    tasks = [pickle.loads(pickle.dumps(writer)) for _ in range(2)]
    writer.commit([task.write(iter([BATCH])) for task in tasks])


def written(batch_id: int, token: int) -> RowsWritten:
    """What a task of a streaming query returns."""
    return RowsWritten(0, PreparedBlocks(BatchName("query", batch_id), token).to_bytes())


def test_s2_a_save_prepares_with_one_token_and_commits_all_tasks_at_once() -> None:
    with ScriptedBroker() as broker:
        save(broker)
        [request] = broker.commits
        assert {block.prepared_token for block in broker.stored} == {request.prepared_token}
        assert sum(part.record_count for part in request.ranges) == 4
        assert request.prepared_token != 0


def test_s7_every_save_is_a_writer_of_its_own() -> None:
    with ScriptedBroker() as broker:
        save(broker)
        save(broker)
        first, second = broker.commits
    assert first.writer_id != second.writer_id
    assert first.prepared_token != second.prepared_token


def test_s7_a_txn_version_is_committed_once() -> None:
    with ScriptedBroker() as broker:
        for version in (4, 4, 3, 5):
            save(broker, txnAppId="job", txnVersion=str(version))
        assert [(one.writer_id, one.batch_id) for one in broker.commits] == [("job", 4), ("job", 5)]


def test_at_least_once_prepares_and_commits_nothing() -> None:
    with ScriptedBroker() as broker:
        save(broker, delivery="at-least-once")
        assert {block.prepared_token for block in broker.stored} == {0}
        assert broker.commits == []
        writer = RocketpyStreamWriter(options(broker, delivery="at-least-once"), COLUMNS)
        writer.commit([written(1, 0)], 1)
        assert broker.commits == []


def test_s7_a_micro_batch_may_be_committed_again_by_another_attempt() -> None:
    with ScriptedBroker() as broker:
        RocketpyStreamWriter(options(broker), COLUMNS).commit([written(1, 8), written(1, 8)], 1)
        RocketpyStreamWriter(options(broker), COLUMNS).commit([written(1, 9), written(1, 9)], 1)
        assert [request.prepared_token for request in broker.commits] == [8]


def test_s8_a_micro_batch_behind_the_last_one_is_refused() -> None:
    with ScriptedBroker() as broker:
        RocketpyStreamWriter(options(broker), COLUMNS).commit([written(3, 8)], 3)
        with pytest.raises(CommitError, match="batch 2 of the query, but batch 3"):
            RocketpyStreamWriter(options(broker), COLUMNS).commit([written(2, 9)], 2)


def test_s8_messages_of_another_batch_are_refused() -> None:
    with ScriptedBroker() as broker:
        writer = RocketpyStreamWriter(options(broker), COLUMNS)
        with pytest.raises(CommitError, match=r"batch 3 is to be committed, .* batch 2"):
            writer.commit([written(2, 8)], 3)
        assert broker.commits == []


def test_s7_abort_changes_nothing_even_after_a_commit() -> None:
    with ScriptedBroker() as broker:
        writer = RocketpyStreamWriter(options(broker), COLUMNS)
        writer.commit([written(1, 8)], 1)
        writer.abort([written(1, 8), None], 1)
        RocketpyWriter(options(broker), COLUMNS).abort([None])
        assert len(broker.commits) == 1
        assert broker.calls == 1


def test_options_that_do_not_fit_together_are_refused() -> None:
    with ScriptedBroker() as broker:
        txn = {"txnAppId": "job", "txnVersion": "1"}
        with pytest.raises(OptionError, match="foreachBatch"):
            RocketpyStreamWriter(options(broker, **txn), COLUMNS)
        with pytest.raises(OptionError, match="exactly-once"):
            options(broker, delivery="at-least-once", **txn)
        with pytest.raises(OptionError, match="both options"):
            options(broker, txnAppId="job")

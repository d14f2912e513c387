"""The writers without Spark: their commits, removals and refusals."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import CommitError, OptionError
from pyspark_rocketpy.options.values import SinkOptions
from pyspark_rocketpy.sink.columns import SinkColumns
from pyspark_rocketpy.sink.task_writer import RowsWritten, generate_token
from pyspark_rocketpy.sink.writers import RocketpyStreamWriter, RocketpyWriter, SinkPlan
from pyspark_rocketpy.transport.grpc_v1.send.batches import WAIT_MS_MAX, part_of
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.write_values import Attempt, BatchJob, BatchName
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.unit.connector.transport.grpc_v1.scripted_broker import REFUSE, ScriptedBroker

COLUMNS = SinkColumns.check(StructType([StructField("Body", StringType())]))
BATCH = pa.record_batch({"Body": pa.array(["a", "b"])})
# The rows of a save of two tasks.
ROWS = 4
Commit = Callable[[ScriptedBroker], None]


def plan(broker: ScriptedBroker, **more: str) -> SinkPlan:
    texts = {"endpoints": broker.config.endpoints[0], "topic": "T", **more}
    options = SinkOptions.parse(texts)
    return SinkPlan(options, COLUMNS, GrpcTransport.of_sink(options))


def tasks_of(writer: RocketpyWriter) -> list[RowsWritten | None]:
    """Runs two tasks as Spark does: each has a copy of the writer."""
    tasks = [pickle.loads(pickle.dumps(writer)) for _ in range(2)]
    return [task.write(iter([BATCH])) for task in tasks]


def save(broker: ScriptedBroker, **more: str) -> None:
    """Saves four rows."""
    writer = RocketpyWriter(plan(broker, **more))
    writer.commit([*tasks_of(writer)])


def written(batch_id: int, token: int, rows: int = 2) -> RowsWritten:
    """Returns the result of a streaming query's task."""
    job = BatchJob(BatchName("query", batch_id), token)
    sent = broker_pb2.StageBlocksResponse(block_count=1, record_count=rows, bytes=100)
    return RowsWritten(job, rows, part_of(Attempt(job, 0, 9), sent))


def commit_stream(
    broker: ScriptedBroker, batch_id: int, token: int, rows: int = 2, /, **more: str
) -> None:
    """Commits a micro-batch as Spark does, of two tasks with `rows` rows each."""
    messages = [written(batch_id, token, rows), written(batch_id, token, rows)]
    RocketpyStreamWriter(plan(broker, **more)).commit([*messages, None], batch_id)


def outcome(
    kind: broker_pb2.BatchOutcome, batch_id: int, count: int, decided: int
) -> broker_pb2.BatchResponse:
    return broker_pb2.BatchResponse(
        outcome=kind, batch_id=batch_id, record_count=count, record_count_decided=decided
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_s2_a_save_stages_as_one_job_and_commits_all_tasks_at_once() -> None:
    with ScriptedBroker() as broker:
        save(broker)
        [request] = broker.commits
        staged = broker.staging
    assert {one.job.SerializeToString() for one in staged} == {request.job.SerializeToString()}
    assert request.job.job_token != 0
    assert sum(request.tasks.record_count) == ROWS
    # Each attempt at a task has a token of its own.
    assert {one.task_token for one in staged} == set(request.tasks.task_token)
    assert len({*request.tasks.task_token, request.job.job_token, 0}) == 4


def test_s7_every_save_is_a_writer_of_its_own_that_never_comes_back() -> None:
    with ScriptedBroker() as broker:
        save(broker)
        save(broker)
        first, second = (commit.job for commit in broker.commits)
    assert first.writer_id != second.writer_id
    assert first.job_token != second.job_token
    assert first.is_single
    assert second.is_single


def test_a_writer_with_a_name_may_come_back() -> None:
    with ScriptedBroker() as broker:
        save(broker, txnAppId="job", txnVersion="4")
        commit_stream(broker, 1, 8)
        assert [commit.job.is_single for commit in broker.commits] == [False, False]
        assert not any(request.job.is_single for request in broker.staging)


def test_s7_a_txn_version_is_committed_once() -> None:
    with ScriptedBroker() as broker:
        for version in (4, 4, 5):
            save(broker, txnAppId="job", txnVersion=str(version))
        jobs = [commit.job for commit in broker.commits]
    assert [(job.writer_id, job.batch_id) for job in jobs] == [("job", 4), ("job", 5)]


def test_s8_a_txn_version_below_the_last_one_is_refused() -> None:
    with ScriptedBroker() as broker:
        save(broker, txnAppId="job", txnVersion="4")
        with pytest.raises(CommitError) as caught:
            save(broker, txnAppId="job", txnVersion="3")
        assert len(broker.commits) == 1
    assert "txnVersion 3 of txnAppId 'job' is too low: version 4" in str(caught.value)
    assert f"these {ROWS} rows were not" in str(caught.value)


def test_another_save_of_the_same_txn_version_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedBroker() as broker:
        save(broker, txnAppId="job", txnVersion="4")
        assert warnings(caplog) == []
        save(broker, txnAppId="job", txnVersion="4", topic="U")
    [told] = warnings(caplog)
    assert told.startswith(
        f"txnVersion 4 of txnAppId 'job' was written before, with {ROWS} messages: the {ROWS} "
        "rows of this save were not written. The batch may have been saved again; "
    )


def test_another_batch_of_the_same_txn_version_is_told_as_such(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Commits as after a new checkpoint, which counts from 0 again."""
    before = outcome(broker_pb2.ALREADY_COMMITTED, 4, ROWS + 1, ROWS + 1)
    with ScriptedBroker(states=[before]) as broker:
        save(broker, txnAppId="job", txnVersion="4")
    [told] = warnings(caplog)
    assert f"with {ROWS + 1} messages: the {ROWS} rows" in told
    assert "The batch is a different one; " in told
    assert told.endswith("needs its own txnAppId, and so does a new checkpoint")


def test_s7_a_commit_that_is_repeated_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedBroker() as broker:
        writer = RocketpyWriter(plan(broker, txnAppId="job", txnVersion="4"))
        messages = tasks_of(writer)
        for _ in range(2):
            writer.commit([*messages])
            commit_stream(broker, 1, 8)
        assert len(broker.commits) == 2
    assert warnings(caplog) == []


def test_at_least_once_stages_commits_and_aborts_nothing() -> None:
    with ScriptedBroker() as broker:
        save(broker, delivery="at-least-once")
        commit_stream(broker, 1, 0, delivery="at-least-once")
        RocketpyWriter(plan(broker, delivery="at-least-once")).abort([])
        stream = RocketpyStreamWriter(plan(broker, delivery="at-least-once"))
        stream.abort([written(1, 0)], 1)
        assert len(broker.bodies()) == ROWS
        assert broker.staging == []
        assert broker.batch_calls == []


def test_s7_a_micro_batch_may_be_committed_again_by_another_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedBroker() as broker:
        commit_stream(broker, 1, 8)
        commit_stream(broker, 1, 9)
        assert [commit.job.job_token for commit in broker.commits] == [8]
    assert warnings(caplog) == []


def test_s7_a_micro_batch_that_has_other_rows_now_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedBroker() as broker:
        commit_stream(broker, 1, 8)
        commit_stream(broker, 1, 9, 5)
    [told] = warnings(caplog)
    assert "batch 1 of the query was written before, with 4 messages; now it has 10" in (told)


def test_s8_a_micro_batch_behind_the_last_one_is_refused() -> None:
    with ScriptedBroker() as broker:
        commit_stream(broker, 3, 8)
        with pytest.raises(CommitError, match="batch 2 of the query, but batch 3"):
            commit_stream(broker, 2, 9)


def test_s8_messages_of_another_batch_are_refused() -> None:
    with ScriptedBroker() as broker:
        writer = RocketpyStreamWriter(plan(broker))
        with pytest.raises(CommitError, match=r"batch 3 is to be committed, .* batch 2"):
            writer.commit([written(2, 8)], 3)
        assert broker.commits == []


def save_one(broker: ScriptedBroker, **more: str) -> None:
    save(broker, txnAppId="job", txnVersion="1", **more)


def stream_one(broker: ScriptedBroker, **more: str) -> None:
    commit_stream(broker, 1, 8, **more)


# States of a batch of four rows. The broker reports that some were lost, that it had decided on
# fewer, or that a batch of another job was committed before.
LOSSES = {
    "lost": outcome(broker_pb2.INCOMPLETE, 1, 3, ROWS),
    "never decided": outcome(broker_pb2.COMMITTED, 1, 3, 3),
    "lost before": outcome(broker_pb2.ALREADY_COMMITTED, 1, 3, ROWS),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("commit", [save_one, stream_one])
def test_s10_a_batch_that_shows_fewer_messages_than_rows_fails(commit: Commit, loss: str) -> None:
    with ScriptedBroker(states=[LOSSES[loss]]) as broker, pytest.raises(CommitError) as caught:
        commit(broker)
    writer_id = "job" if commit is save_one else "query"
    told = f"batch 1 of writer {writer_id!r}, topic 'T', shows 3 of its {ROWS} messages"
    assert told in str(caught.value)
    assert "Set option failOnDataLoss to false to continue without them" in str(caught.value)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("commit", [save_one, stream_one])
def test_s10_a_batch_that_shows_fewer_messages_than_rows_is_warned_about_on_request(
    commit: Callable[..., None], loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker(states=[LOSSES[loss]]) as broker:
        commit(broker, failOnDataLoss="false")
    told, *more = warnings(caplog)
    writer_id = "job" if commit is save_one else "query"
    assert f"batch 1 of writer {writer_id!r}, topic 'T', shows 3 of its {ROWS} messages" in told
    # A save also logs that another job committed the batch.
    assert len(more) == (commit is save_one and loss == "lost before")


def test_s10_a_batch_whose_rows_name_their_topics_tells_no_other() -> None:
    fields = [StructField(name, StringType()) for name in ("Body", "topic")]
    columns = SinkColumns.check(StructType(fields))
    with ScriptedBroker(states=[LOSSES["lost"]]) as broker:
        options = SinkOptions.parse({"endpoints": broker.config.endpoints[0]})
        written_to = SinkPlan(options, columns, GrpcTransport.of_sink(options))
        with pytest.raises(CommitError, match="batch 1 of writer 'query' shows 3 of its 4"):
            RocketpyStreamWriter(written_to).commit([written(1, 8), written(1, 8)], 1)


@pytest.mark.parametrize("commit", [save_one, stream_one])
def test_s8_what_a_later_batch_has_lost_is_not_told_of_this_one(commit: Commit) -> None:
    late = outcome(broker_pb2.ALREADY_COMMITTED, 2, 3, ROWS)
    with ScriptedBroker(states=[late]) as broker, pytest.raises(CommitError) as caught:
        commit(broker)
    assert "has been written already" in str(caught.value)


@pytest.mark.parametrize(("timeout_ms", "calls"), [(20_000, 3), (50_000, 6)])
def test_s10_a_commit_may_stand_still_for_as_long_as_the_option_says(
    timeout_ms: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed_ms: list[int] = []
    monkeypatch.setattr(clock, "monotonic_ms", lambda: sum(elapsed_ms))
    with ScriptedBroker(states=[outcome(broker_pb2.IN_PROGRESS, 1, 3, ROWS)] * 20) as broker:
        broker.pass_ms = elapsed_ms.append
        with pytest.raises(
            CommitError, match=f"3 of {ROWS} .* without progress for {timeout_ms} ms"
        ):
            save_one(broker, commitTimeout=f"{timeout_ms}ms")
        assert elapsed_ms == [WAIT_MS_MAX] * calls


def test_s2_an_aborted_save_removes_what_its_job_has_staged() -> None:
    with ScriptedBroker() as broker:
        writer = RocketpyWriter(plan(broker))
        first, _ = tasks_of(writer)
        pickle.loads(pickle.dumps(writer)).abort([first, None])
        job = broker.staging[0].job
        assert broker.batch_calls == [broker_pb2.AbortBatchRequest(job=job)]


def test_s2_an_aborted_micro_batch_removes_what_its_job_has_staged() -> None:
    """Aborts by a new writer, as Spark does: the tasks had another one."""
    with ScriptedBroker() as broker:
        messages = [None, written(1, 7), written(2, 8), written(2, 8)]
        RocketpyStreamWriter(plan(broker)).abort([*messages], 2)
        job = broker_pb2.BatchJob(writer_id="query", batch_id=2, job_token=8)
        assert broker.batch_calls == [broker_pb2.AbortBatchRequest(job=job)]


def test_an_aborted_micro_batch_of_which_no_task_has_ended_asks_nobody() -> None:
    with ScriptedBroker() as broker:
        RocketpyStreamWriter(plan(broker)).abort([None, None, written(1, 8)], 2)
        assert broker.batch_calls == []


def test_an_abort_that_fails_does_not_hide_why_the_query_failed(
    caplog: pytest.LogCaptureFixture, waits_ms: list[int]
) -> None:
    with ScriptedBroker(REFUSE) as broker:
        RocketpyWriter(plan(broker)).abort([])
        assert len(broker.batch_calls) == 1
        broker.stop()
        RocketpyStreamWriter(plan(broker, connectTimeout="100ms")).abort([written(1, 8)], 1)
    refused, gone = warnings(caplog)
    assert "could not be removed: ROCKETPY_BROKER" in refused
    assert "could not be removed: ROCKETPY_CONNECTION" in gone
    # Spark reports why the query failed only when the abort has ended.
    assert waits_ms == []


def test_options_that_do_not_fit_together_are_refused() -> None:
    with ScriptedBroker() as broker:
        txn = {"txnAppId": "job", "txnVersion": "1"}
        with pytest.raises(OptionError, match="foreachBatch"):
            RocketpyStreamWriter(plan(broker, **txn))
        with pytest.raises(OptionError, match="delivery is at-least-once"):
            plan(broker, delivery="at-least-once", **txn)
        with pytest.raises(OptionError, match="both options"):
            plan(broker, txnAppId="job")


def test_tokens_differ_and_are_never_0() -> None:
    tokens = {generate_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert min(tokens) > 0
    assert max(tokens) < 1 << 63

"""Commits of a batch: the tasks' parts become one request, and the driver waits for the batch."""

from __future__ import annotations

import logging

import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    CommitError,
    ConnectionFailedError,
)
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.send.batches import (
    PROGRESS_MS,
    WAIT_MS_MAX,
    BatchCommitter,
    job_of,
    joined,
    part_of,
)
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    BatchName,
    CommittedBatch,
    CommitTimeouts,
)
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.unit.connector.transport.grpc_v1.scripted_broker import (
    BUSY,
    FLUSH_TIMEOUT,
    LOSE,
    LOSE_ANSWER,
    REFUSE,
    SILENCE,
    STORE,
    ScriptedBroker,
)

JOB = BatchJob(BatchName("writer", 7), 11)
RIVAL = BatchJob(BatchName("writer", 7), 12)
SINGLE = BatchJob(BatchName("drawn", 0), 11, is_single=True)
STANDSTILL_MS_MAX = 60_000
Response = broker_pb2.BatchResponse


def part(job: BatchJob = JOB, task: int = 0, blocks: int = 1) -> bytes:
    """Returns a task's part, with two records of 100 B a block."""
    sent = broker_pb2.StageBlocksResponse(
        block_count=blocks, record_count=2 * blocks, bytes=200 * blocks
    )
    return part_of(Attempt(job, task, 100 + task), sent)


def request(*parts: bytes, batch_id: int = 7) -> broker_pb2.CommitBatchRequest:
    """Returns the request that commits a batch."""
    return joined(parts or [part()], batch_id)


def committer(
    broker: ScriptedBroker, times_max: int = 3, call_ms_max: int = 30_000
) -> BatchCommitter:
    timeouts = CommitTimeouts(call_ms_max, STANDSTILL_MS_MAX)
    return BatchCommitter(broker.config, RetryPolicy(times_max, 100), timeouts)


def in_progress(count: int, hindrance: str = "", batch_id: int = 7) -> Response:
    """Returns the state of a batch of 9 messages that is being stored."""
    return Response(
        outcome=broker_pb2.IN_PROGRESS,
        batch_id=batch_id,
        record_count=count,
        record_count_decided=9,
        hindrance=hindrance,
    )


@pytest.fixture
def elapsed_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the steps of the connector's clock; its time is their sum."""
    elapsed = [1_000]
    monkeypatch.setattr(clock, "monotonic_ms", lambda: sum(elapsed))
    return elapsed


def test_s2_parts_join_in_the_order_of_the_tasks() -> None:
    whole = request(part(task=2, blocks=3), part(task=0, blocks=0), part(task=1))
    assert whole.job == broker_pb2.BatchJob(writer_id="writer", batch_id=7, job_token=11)
    # A task that has staged nothing is not named.
    assert whole.tasks == broker_pb2.StagedTasks(
        task=[2, 1],
        task_token=[102, 101],
        block_count=[3, 1],
        record_count=[6, 2],
        bytes=[600, 200],
    )


def test_s7_parts_of_two_jobs_are_refused() -> None:
    with pytest.raises(CommitError, match=r"job 11 and .*job 12"):
        request(part(), part(RIVAL, task=1))
    with pytest.raises(CommitError, match="no task"):
        joined([], 7)
    with pytest.raises(CommitError, match=r"batch 8 is to be committed, .* batch 7"):
        request(part(), batch_id=8)


def test_a_job_tells_whether_its_writer_comes_again() -> None:
    assert not job_of(JOB).is_single
    assert request(part(SINGLE), batch_id=0).job == job_of(SINGLE)
    assert job_of(SINGLE).is_single


@pytest.mark.parametrize("event", [LOSE_ANSWER, BUSY, SILENCE, FLUSH_TIMEOUT])
def test_s7_a_commit_without_an_answer_is_sent_again_and_counts_once(
    event: str, waits_ms: list[int]
) -> None:
    with ScriptedBroker(event) as broker:
        by = committer(broker, call_ms_max=1_500)
        assert by.commit(request()) == CommittedBatch(7, True, 2, 2)
        assert [commit.job.job_token for commit in broker.commits] == [11]
        assert broker.calls == 2


def test_s7_a_batch_that_another_job_has_committed_is_no_error_and_not_its_own() -> None:
    with ScriptedBroker() as broker:
        assert committer(broker).commit(request(part(blocks=2))).is_own
        again = committer(broker).commit(request(part(blocks=2)))
        other = committer(broker).commit(request(part(RIVAL)))
        assert len(broker.commits) == 1
    assert again == CommittedBatch(7, True, 4, 4)
    assert other == CommittedBatch(7, False, 4, 4)


def test_s8_of_an_older_batch_nothing_is_sent() -> None:
    with ScriptedBroker() as broker:
        broker.last["writer"] = Response(batch_id=9, record_count=5, record_count_decided=5)
        assert committer(broker).commit(request()) == CommittedBatch(9, False, 5, 5)
        assert broker.commits == []


def test_s10_a_batch_that_is_being_stored_is_asked_after_until_it_is() -> None:
    states = [in_progress(0), in_progress(3), in_progress(3)]
    with ScriptedBroker(states=states) as broker:
        assert committer(broker).commit(request()) == CommittedBatch(7, True, 2, 2)
        wait_ms_max = WAIT_MS_MAX
        query = broker_pb2.QueryBatchRequest(job=job_of(JOB), wait_ms_max=wait_ms_max)
        [commit, *queries] = broker.batch_calls
    assert commit == request_with_wait(wait_ms_max)
    assert queries == [query] * 3


def request_with_wait(wait_ms_max: int) -> broker_pb2.CommitBatchRequest:
    wanted = request()
    wanted.wait_ms_max = wait_ms_max
    return wanted


def test_a_call_is_answered_before_it_is_given_up() -> None:
    with ScriptedBroker() as broker:
        committer(broker, call_ms_max=3_000).commit(request())
        assert broker.batch_calls == [request_with_wait(1_500)]


@pytest.mark.parametrize("event", [LOSE, BUSY, SILENCE])
def test_s10_a_query_without_an_answer_is_sent_again(event: str, waits_ms: list[int]) -> None:
    with ScriptedBroker(STORE, event, states=[in_progress(0)]) as broker:
        by = committer(broker, call_ms_max=1_500)
        assert by.commit(request()) == CommittedBatch(7, True, 2, 2)
        assert len(broker.commits) == 1
        assert broker.calls == 3


def test_s10_a_commit_that_stands_still_tells_how_far_it_came_and_why(
    elapsed_ms: list[int],
) -> None:
    states = [in_progress(0), *[in_progress(4, "the disk is full")] * 20]
    with ScriptedBroker(states=states) as broker:
        broker.pass_ms = elapsed_ms.append
        with pytest.raises(CommitError) as caught:
            committer(broker).commit(request())
    text = str(caught.value)
    assert "4 of 9 messages of batch 7 of writer writer are stored, without progress for" in text
    assert f"for {STANDSTILL_MS_MAX} ms (the disk is full)" in text
    assert "run the batch again to wait for it, or set option commitTimeout higher" in text


def test_s10_the_batch_before_it_is_waited_for_as_long_as_it_gets_on(elapsed_ms: list[int]) -> None:
    states = [*[in_progress(number // 5, batch_id=6) for number in range(45)], in_progress(0)]
    with ScriptedBroker(states=states) as broker:
        broker.pass_ms = elapsed_ms.append
        assert committer(broker).commit(request()) == CommittedBatch(7, True, 2, 2)
        calls = broker.batch_calls
    # A commit is sent while the batch is undecided, a query once it is decided.
    assert calls == [*[request_with_wait(WAIT_MS_MAX)] * 46, calls[-1]]
    assert isinstance(calls[-1], broker_pb2.QueryBatchRequest)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([in_progress(4)] * 1_000, id="the same"),
        pytest.param([in_progress(4), in_progress(3)] * 500, id="to and fro"),
        pytest.param([Response(outcome=broker_pb2.NOT_COMMITTED, batch_id=-1)] * 1_000, id="none"),
        pytest.param(
            [in_progress(4), Response(outcome=broker_pb2.NOT_COMMITTED, batch_id=-1)] * 500,
            id="decided and lost",
        ),
    ],
)
def test_s10_answers_that_come_at_once_and_say_nothing_new_are_asked_for_in_larger_steps(
    elapsed_ms: list[int], monkeypatch: pytest.MonkeyPatch, states: list[Response]
) -> None:
    monkeypatch.setattr(clock, "sleep_ms", elapsed_ms.append)
    with ScriptedBroker(states=states) as broker:
        with pytest.raises(CommitError, match=r"without progress for 6\d{4} ms"):
            committer(broker).commit(request())
        # 0.1 s, 0.2 s, ... 5 s: 18 waits in a minute, and the first answer.
        assert broker.calls <= 20
    assert sum(elapsed_ms) < 2 * STANDSTILL_MS_MAX


def test_s10_a_batch_behind_one_that_stands_still_tells_which_and_why(
    elapsed_ms: list[int],
) -> None:
    with ScriptedBroker(states=[in_progress(4, "no room", batch_id=6)] * 20) as broker:
        broker.pass_ms = elapsed_ms.append
        with pytest.raises(CommitError, match=r"4 of 9 messages of batch 6 .*\(no room\)"):
            committer(broker).commit(request())


def test_s10_a_save_that_cannot_be_recognized_is_not_to_be_saved_again(
    elapsed_ms: list[int],
) -> None:
    with ScriptedBroker(states=[in_progress(4)] * 20) as broker:
        broker.pass_ms = elapsed_ms.append
        with pytest.raises(
            CommitError, match="if it is saved again, its messages are stored twice"
        ) as caught:
            committer(broker).commit(request(part(SINGLE), batch_id=0))
    assert "run the batch again" not in str(caught.value)


def test_s10_a_commit_that_gets_on_is_waited_for_however_long_it_takes(
    elapsed_ms: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    calls = range(45)
    states = [in_progress(number // 5) for number in calls]
    with ScriptedBroker(states=states) as broker:
        broker.pass_ms = elapsed_ms.append
        with caplog.at_level(logging.WARNING):
            assert committer(broker).commit(request()).is_own
    assert sum(elapsed_ms) > 7 * STANDSTILL_MS_MAX
    told = [record.message for record in caplog.records]
    assert "5 of 9 messages of batch 7 of writer writer are stored" in told
    assert len(told) == (len(calls) - 1) * WAIT_MS_MAX // PROGRESS_MS


def test_a_decision_that_the_broker_has_lost_is_made_again() -> None:
    lost = Response(outcome=broker_pb2.NOT_COMMITTED, batch_id=-1)
    with ScriptedBroker(states=[in_progress(4), lost, in_progress(0)]) as broker:
        assert committer(broker).commit(request()).is_own
        kinds = [type(call).__name__ for call in broker.batch_calls]
    assert kinds == [
        "CommitBatchRequest",
        "QueryBatchRequest",
        "CommitBatchRequest",
        "QueryBatchRequest",
    ]


def test_a_batch_that_is_committed_in_the_end_is_no_standstill(elapsed_ms: list[int]) -> None:
    lost = Response(outcome=broker_pb2.NOT_COMMITTED, batch_id=-1)
    states = [*[in_progress(4)] * 5, lost]
    with ScriptedBroker(states=states) as broker:
        broker.pass_ms = elapsed_ms.append
        assert committer(broker).commit(request()) == CommittedBatch(7, True, 2, 2)


def test_s10_a_batch_of_which_a_part_is_lost_tells_both_counts() -> None:
    lost = Response(
        outcome=broker_pb2.INCOMPLETE, batch_id=7, record_count=6, record_count_decided=9
    )
    with ScriptedBroker(states=[in_progress(4), lost]) as broker:
        assert committer(broker).commit(request()) == CommittedBatch(7, True, 6, 9)


def test_an_abort_names_the_job() -> None:
    with ScriptedBroker() as broker:
        committer(broker).abort(job_of(JOB))
        assert broker.batch_calls == [broker_pb2.AbortBatchRequest(job=job_of(JOB))]


@pytest.mark.parametrize(
    ("event", "kind"), [(BUSY, BrokerBusyError), (SILENCE, ConnectionFailedError)]
)
def test_an_abort_that_fails_is_not_tried_again(
    event: str, kind: type[Exception], waits_ms: list[int]
) -> None:
    with ScriptedBroker(event) as broker:
        with pytest.raises(kind):
            committer(broker, call_ms_max=1_500).abort(job_of(JOB))
        assert broker.calls == 1
    assert waits_ms == []


def test_a_refused_commit_is_the_broker_s_error() -> None:
    with ScriptedBroker(REFUSE) as broker, pytest.raises(BrokerError, match="response code 13"):
        committer(broker).commit(request())


def test_a_broker_that_is_gone_is_an_error_after_the_retries(waits_ms: list[int]) -> None:
    with ScriptedBroker() as broker:
        committer(broker).commit(request())
        broker.stop()
        config = ClientConfig(broker.config.endpoints, 100)
        timeouts = CommitTimeouts(1_000, STANDSTILL_MS_MAX)
        gone = BatchCommitter(config, RetryPolicy(2, 100), timeouts)
        with pytest.raises(ConnectionFailedError, match=r"no broker answers.*run the batch again"):
            gone.commit(request())
        assert waits_ms == [100, 200]
        # The connector cannot know whether it was committed, and would not recognize it.
        with pytest.raises(ConnectionFailedError, match="check the topic before you save again"):
            gone.commit(request(part(SINGLE), batch_id=0))


def test_a_commit_that_names_too_many_tasks_says_what_to_do() -> None:
    parts = [part(task=task) for task in range(100)]
    with (
        ScriptedBroker(request_bytes_max=1_000) as broker,
        pytest.raises(CommitError, match=r"100 tasks .* 1000; write with fewer tasks"),
    ):
        committer(broker).commit(request(*parts))

"""Staged blocks of a task: each counts once, in spite of any fault."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import chain

import pytest

from pyspark_rocketpy.errors import BrokerError, CommitError
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.send.appender import IN_FLIGHT_MAX
from pyspark_rocketpy.transport.grpc_v1.send.batches import job_of
from pyspark_rocketpy.transport.grpc_v1.send.block_writer import GrpcBlockWriter, GrpcStagingWriter
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import Attempt, BatchJob, BatchName, Block
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.grpc_v1.scripted_broker import (
    BUSY,
    FLUSH_TIMEOUT,
    LOSE,
    LOSE_ANSWER,
    MISCOUNT,
    REFUSE,
    SILENCE,
    STORE,
    ScriptedBroker,
)

ATTEMPT = Attempt(BatchJob(BatchName("writer", 7), 11), 3, 101)
COUNT = 3 * IN_FLIGHT_MAX
BODIES = [[b"%d" % number, b"and more"] for number in range(COUNT)]
ALL = list(chain.from_iterable(BODIES))


def blocks(bodies: Sequence[Sequence[bytes]] = BODIES) -> list[Block]:
    """Returns a block of queue 2 for each of the lists."""
    wires = [wire_block("T", one) for one in bodies]
    return [Block("T", 2, wire.record_sizes, wire.records) for wire in wires]


def staging(broker: ScriptedBroker, send_timeout_ms: int = 10_000) -> GrpcStagingWriter:
    return GrpcStagingWriter(broker.config, RetryPolicy(3, 100), send_timeout_ms, ATTEMPT)


def stage_all(
    broker: ScriptedBroker,
    bodies: Sequence[Sequence[bytes]] = BODIES,
    send_timeout_ms: int = 10_000,
) -> broker_pb2.CommitBatchRequest:
    """Stages a block for each of the lists; returns the task's part of the commit."""
    with closing(staging(broker, send_timeout_ms)) as writer:
        return sent_to_end(writer, bodies)


def sent_to_end(
    writer: GrpcStagingWriter, bodies: Sequence[Sequence[bytes]] = BODIES
) -> broker_pb2.CommitBatchRequest:
    for block in blocks(bodies):
        writer.send(block)
    return broker_pb2.CommitBatchRequest.FromString(writer.finish())


def part_of_all(broker: ScriptedBroker) -> broker_pb2.CommitBatchRequest:
    """Returns the expected part of a task with all blocks staged once."""
    tasks = broker_pb2.StagedTasks(
        task=[3],
        task_token=[101],
        block_count=[COUNT],
        record_count=[2 * COUNT],
        bytes=[sum(len(block.records) for block in broker.stored)],
    )
    return broker_pb2.CommitBatchRequest(job=job_of(ATTEMPT.job), tasks=tasks)


def test_the_broker_hears_of_the_job_first_and_of_the_end_last() -> None:
    with ScriptedBroker() as broker:
        assert stage_all(broker) == part_of_all(broker)
        hello, *sent, end = broker.staging
        assert broker.bodies(2) == ALL
    named = broker_pb2.StageBlocksRequest(job=job_of(ATTEMPT.job), task=3, task_token=101)
    assert hello == named
    assert [request.block_number for request in sent] == list(range(COUNT))
    assert {(one.task, one.task_token, one.is_last) for one in sent} == {(3, 101, False)}
    assert {one.job.SerializeToString() for one in sent} == {hello.job.SerializeToString()}
    named.block_number, named.is_last = COUNT, True
    assert end == named


def test_the_broker_hears_of_a_job_before_its_task_has_rows() -> None:
    with ScriptedBroker() as broker, closing(staging(broker)):
        assert broker.has_staged.wait(WAIT_SECONDS_MAX)
        assert [request.records for request in broker.staging] == [b""]


def test_a_task_without_rows_ends_and_names_nothing() -> None:
    with ScriptedBroker() as broker:
        part = stage_all(broker, [])
        assert [request.is_last for request in broker.staging] == [False, True]
    assert part == broker_pb2.CommitBatchRequest(job=job_of(ATTEMPT.job))


@pytest.mark.parametrize("event", [LOSE, LOSE_ANSWER, BUSY, FLUSH_TIMEOUT])
@pytest.mark.parametrize("at", [0, 1, 2, IN_FLIGHT_MAX, COUNT, COUNT + 1])
def test_s2_a_request_without_an_answer_goes_again_and_counts_once(
    event: str, at: int, waits_ms: list[int]
) -> None:
    """Fails request `at`: 0 is the greeting, 1 the first block, COUNT + 1 the end."""
    with ScriptedBroker(*[STORE] * at, event) as broker:
        assert stage_all(broker) == part_of_all(broker)
        assert broker.bodies() == ALL
        assert len(broker.staging) > COUNT + 2
    assert waits_ms == [100]


def test_s2_a_broker_that_says_nothing_is_asked_again_and_counts_once(waits_ms: list[int]) -> None:
    with ScriptedBroker(STORE, STORE, SILENCE) as broker:
        assert stage_all(broker, send_timeout_ms=1_500) == part_of_all(broker)
        assert broker.bodies() == ALL
    assert waits_ms == [100]


@pytest.mark.parametrize("at", [0, 1, COUNT + 1])
def test_a_refusal_is_the_broker_s_error_and_not_tried_again(at: int, waits_ms: list[int]) -> None:
    script = [*[STORE] * at, REFUSE]
    with ScriptedBroker(*script) as broker, pytest.raises(BrokerError, match="response code 13"):
        stage_all(broker)
    assert waits_ms == []


@pytest.mark.parametrize(("at", "is_whole"), [(0, True), (IN_FLIGHT_MAX + 2, False)])
def test_s2_the_next_endpoint_takes_over_unless_it_would_miss_blocks(
    at: int, is_whole: bool, waits_ms: list[int]
) -> None:
    with ScriptedBroker(*[STORE] * at, LOSE) as first, ScriptedBroker() as second:
        config = ClientConfig((*first.config.endpoints, *second.config.endpoints), 2_000)
        writer = GrpcStagingWriter(config, RetryPolicy(3, 100), 10_000, ATTEMPT)
        with closing(writer), pytest.MonkeyPatch.context() as patch:
            patch.setattr("pyspark_rocketpy.clock.sleep_ms", lambda _: first.stop())
            if is_whole:
                assert sent_to_end(writer) == part_of_all(second)
            else:
                with pytest.raises(BrokerError, match="response code 13"):
                    sent_to_end(writer)
        assert second.bodies() == (ALL if is_whole else [])


@pytest.mark.parametrize("bodies", [BODIES, BODIES[:1], []])
def test_a_broker_that_holds_something_else_is_told_with_both_counts(
    bodies: Sequence[Sequence[bytes]],
) -> None:
    script = [STORE] * (len(bodies) + 1)
    with ScriptedBroker(*script, MISCOUNT) as broker, pytest.raises(CommitError) as caught:
        stage_all(broker, bodies)
    sent, kept = 2 * len(bodies), 2 * len(bodies) - 1
    blocks = counted(len(bodies), "block")
    assert f"task 3 has sent {blocks} of {counted(sent, 'message')}" in str(caught.value)
    assert f"the broker has {blocks} of {counted(kept, 'message')}" in str(caught.value)


def test_s7_a_batch_that_is_committed_gets_no_more_blocks() -> None:
    with ScriptedBroker() as broker:
        broker.last["writer"] = broker_pb2.BatchResponse(batch_id=7)
        part = stage_all(broker, BODIES * 5)
        # The greeting, the blocks in flight before its answer was read, one more, and the end.
        assert len(broker.staging) == IN_FLIGHT_MAX + 2
        assert broker.staging[-1].is_last
        assert broker.stored == []
    # The part suffices for the commit, whose answer says that the batch is committed.
    assert part.job == job_of(ATTEMPT.job)


def test_a_later_batch_of_the_writer_takes_all_blocks() -> None:
    with ScriptedBroker() as broker:
        broker.last["writer"] = broker_pb2.BatchResponse(batch_id=6)
        assert stage_all(broker) == part_of_all(broker)


def test_blocks_that_show_at_once_have_no_part_in_a_commit() -> None:
    with ScriptedBroker() as broker:
        writer = GrpcBlockWriter(broker.config, RetryPolicy(3, 100), 10_000)
        with closing(writer):
            for block in blocks():
                writer.send(block)
            assert writer.finish() == b""
        assert broker.bodies(2) == ALL
        assert broker.staging == []

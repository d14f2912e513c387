"""Committing a batch: the tasks' parts become one request, sent until it is answered."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.batches import (
    BatchCommitter,
    BatchName,
    PreparedBlocks,
    draw_token,
    joined,
)
from pyspark_rocketpy.errors import BrokerError, CommitError, ConnectionFailedError
from pyspark_rocketpy.retrying import RetryPolicy
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.unit.connector.scripted_broker import (
    BUSY,
    LOSE_ANSWER,
    REFUSE,
    SILENCE,
    ScriptedBroker,
)

NAME = BatchName("writer", 7)
TOKEN = 11


def prepared(*blocks: tuple[str, int, int, int], token: int = TOKEN) -> bytes:
    """A task's part with blocks of 100 B a record: topic, queue id, physical offset, records."""
    part = PreparedBlocks(NAME, token)
    for topic, queue_id, offset, count in blocks:
        part.add(
            broker_pb2.AppendRequest(topic=topic, queue_id=queue_id, records=bytes(100 * count)),
            broker_pb2.AppendResponse(
                queue_id=queue_id, physical_offset=offset, record_count=count
            ),
        )
    return part.to_bytes()


def ranges_of(request: broker_pb2.CommitBatchRequest) -> list[tuple[str, int, int, int, int]]:
    return [
        (part.topic, part.queue_id, part.physical_offset, part.length, part.record_count)
        for part in request.ranges
    ]


def committer(broker: ScriptedBroker, times_max: int = 3) -> BatchCommitter:
    return BatchCommitter(broker.config, RetryPolicy(times_max, 100), 10_000)


def test_s2_parts_join_in_the_order_of_the_tasks() -> None:
    request = joined([prepared(("T", 1, 900, 2)), prepared(), prepared(("T", 0, 0, 1))])
    assert (request.writer_id, request.batch_id, request.prepared_token) == ("writer", 7, TOKEN)
    assert ranges_of(request) == [("T", 1, 900, 200, 2), ("T", 0, 0, 100, 1)]


def test_blocks_that_touch_in_one_queue_become_one_range() -> None:
    part = prepared(("T", 0, 0, 1), ("T", 0, 100, 2), ("T", 1, 300, 1), ("T", 1, 500, 1))
    assert ranges_of(joined([part])) == [
        ("T", 0, 0, 300, 3),
        ("T", 1, 300, 100, 1),
        ("T", 1, 500, 100, 1),
    ]


def test_blocks_of_two_topics_stay_apart() -> None:
    part = prepared(("T", 0, 0, 1), ("U", 0, 100, 1))
    assert len(joined([part]).ranges) == 2


def test_s7_parts_of_two_attempts_are_refused() -> None:
    with pytest.raises(CommitError, match=r"token 11 and .*token 12"):
        joined([prepared(), prepared(token=12)])
    with pytest.raises(CommitError, match="no task"):
        joined([])


def test_tokens_differ_and_are_never_0() -> None:
    tokens = {draw_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert min(tokens) > 0
    assert max(tokens) < 1 << 63


@pytest.mark.parametrize("event", [LOSE_ANSWER, BUSY, SILENCE])
def test_s7_a_commit_without_an_answer_is_sent_again_and_counts_once(
    event: str, waits_ms: list[int]
) -> None:
    with ScriptedBroker(event) as broker:
        by = BatchCommitter(broker.config, RetryPolicy(3, 100), 500)
        assert by.commit(joined([prepared(("T", 0, 0, 1))])) == 7
        assert [request.prepared_token for request in broker.commits] == [TOKEN]
        assert broker.calls == 2


def test_s7_a_batch_that_was_committed_before_is_no_error() -> None:
    with ScriptedBroker() as broker:
        committer(broker).commit(joined([prepared()]))
        assert committer(broker).commit(joined([prepared(token=12)])) == 7
        assert len(broker.commits) == 1


def test_s8_an_older_batch_is_told_the_last_one() -> None:
    with ScriptedBroker() as broker:
        broker.last_batches["writer"] = 9
        assert committer(broker).commit(joined([prepared()])) == 9
        assert broker.commits == []


def test_a_refused_commit_is_the_broker_s_error() -> None:
    with ScriptedBroker(REFUSE) as broker, pytest.raises(BrokerError, match="response code 13"):
        committer(broker).commit(joined([prepared()]))


def test_a_broker_that_is_gone_is_an_error_after_the_retries(waits_ms: list[int]) -> None:
    with ScriptedBroker() as broker:
        by = committer(broker)
        by.commit(joined([prepared()]))
        broker.stop()
        config = broker.config.__class__(broker.config.endpoints, 100)
        gone = BatchCommitter(config, RetryPolicy(2, 100), 1_000)
        with pytest.raises(ConnectionFailedError, match="no broker answers"):
            gone.commit(joined([prepared()]))
    assert waits_ms == [100, 200]


def test_a_commit_that_names_too_many_blocks_says_what_to_do() -> None:
    part = prepared(*(("T", 0, 1_000 * number, 1) for number in range(100)))
    with (
        ScriptedBroker(request_bytes_max=1_000) as broker,
        pytest.raises(CommitError, match=r"100 blocks .* batchBytesMax"),
    ):
        committer(broker).commit(joined([part]))

"""Contract of exactly-once sink and transport: each transport with batches passes this suite."""

from __future__ import annotations

from contextlib import closing

import pytest

from pyspark_rocketpy.errors import BrokerError, CommitError
from pyspark_rocketpy.transport.write_values import CommittedBatch
from tests.unit.connector.transport.contract import Setup, attempt, block, job_for, of_rocketpy

pytestmark = of_rocketpy


def test_s2_what_is_staged_shows_with_the_commit_of_all_tasks_and_not_before(
    setup: Setup,
) -> None:
    topic = setup.topic()
    job = job_for(topic, 4)
    parts = [setup.write(attempt(job, 0), block(topic, [b"a", b"b"]), block(topic, [b"c"], 1))]
    setup.stage(job, topic, b"x", task=1)
    parts.append(setup.stage(job, topic, b"d", task=1))
    parts.append(setup.stage(job, topic, task=2))
    assert setup.bodies(topic) == setup.bodies(topic, queue_id=1) == []
    assert setup.commit(job, *parts) == CommittedBatch(4, True, 4, 4)
    assert setup.bodies(topic) == [b"a", b"b", b"d"]
    assert setup.bodies(topic, queue_id=1) == [b"c"]


def test_s7_a_batch_is_committed_once_whoever_repeats_it(setup: Setup) -> None:
    topic = setup.topic()
    first, second = job_for(topic, 5, 1), job_for(topic, 5, 2)
    part = setup.stage(first, topic, b"a", b"b")
    for _ in range(2):
        assert setup.commit(first, part) == CommittedBatch(5, True, 2, 2)
    other = setup.stage(second, topic, b"c")
    assert setup.commit(second, other) == CommittedBatch(5, False, 2, 2)
    assert setup.commit(first, part) == CommittedBatch(5, True, 2, 2)
    assert setup.bodies(topic) == [b"a", b"b"]


def test_s8_an_older_batch_is_told_the_last_one(setup: Setup) -> None:
    topic = setup.topic()
    older, newer = job_for(topic, 3), job_for(topic, 5)
    part = setup.stage(newer, topic, b"newer")
    late = setup.stage(older, topic, b"older")
    setup.commit(newer, part)
    assert setup.commit(older, late) == CommittedBatch(5, False, 1, 1)
    assert setup.bodies(topic) == [b"newer"]


def test_s7_parts_that_do_not_belong_together_are_refused(setup: Setup) -> None:
    topic = setup.topic()
    jobs = job_for(topic, 1), job_for(topic, 1, token=2), job_for(topic, 2)
    first, second, other = (setup.stage(job, topic, b"x") for job in jobs)
    for parts in ([], [first, second], [first, other], [other]):
        with pytest.raises(CommitError):
            setup.sink.commit_batch(parts, 1)
    assert setup.bodies(topic) == []


def test_s2_what_was_aborted_is_gone_and_comes_no_more(setup: Setup) -> None:
    topic = setup.topic()
    job, next_job = job_for(topic, 1), job_for(topic, 1, token=2)
    part = setup.stage(job, topic, b"x")
    setup.sink.abort_batch(job)
    setup.sink.abort_batch(job)
    with pytest.raises(BrokerError):
        setup.commit(job, part)
    with pytest.raises(BrokerError):
        setup.stage(job, topic, b"late")
    assert setup.commit(next_job, setup.stage(next_job, topic, b"a")).is_own
    assert setup.bodies(topic) == [b"a"]


def test_s7_an_abort_has_no_effect_on_a_committed_batch(setup: Setup) -> None:
    topic = setup.topic()
    job = job_for(topic, 1)
    part = setup.stage(job, topic, b"a")
    setup.commit(job, part)
    setup.sink.abort_batch(job)
    assert setup.commit(job, part) == CommittedBatch(1, True, 1, 1)
    assert setup.bodies(topic) == [b"a"]


@pytest.mark.parametrize("batch_id", [5, 6])
def test_s7_a_newer_job_puts_away_what_the_writer_has_staged_so_far(
    batch_id: int, setup: Setup
) -> None:
    topic = setup.topic()
    older, newer = job_for(topic, 5), job_for(topic, batch_id, token=2)
    stale = setup.stage(older, topic, b"stale")
    # It has no rows but is reported to the broker.
    empty = setup.stage(newer, topic, task=0)
    with pytest.raises(BrokerError):
        setup.stage(older, topic, b"late", task=1)
    with pytest.raises(BrokerError):
        setup.commit(older, stale)
    part = setup.stage(newer, topic, b"a", task=1)
    assert setup.commit(newer, empty, part) == CommittedBatch(batch_id, True, 1, 1)
    assert setup.bodies(topic) == [b"a"]


def test_s7_jobs_of_other_writers_and_of_older_batches_put_nothing_away(setup: Setup) -> None:
    topic = setup.topic()
    job = job_for(topic, 5)
    part = setup.stage(job, topic, b"a")
    setup.stage(job_for(setup.topic(), 5), topic, b"x")
    setup.stage(job_for(topic, 4, token=2), topic, b"x")
    assert setup.commit(job, part).is_own
    assert setup.bodies(topic) == [b"a"]


@pytest.mark.parametrize("batch_id", [4, 5])
def test_s7_blocks_of_a_batch_that_is_committed_are_dropped(batch_id: int, setup: Setup) -> None:
    topic = setup.topic()
    job, late = job_for(topic, 5), job_for(topic, batch_id, token=2)
    setup.commit(job, setup.stage(job, topic, b"a"))
    blocks = [block(topic, [b"%d" % number, b"more"]) for number in range(20)]
    part = setup.write(attempt(late), *blocks)
    assert setup.commit(late, part) == CommittedBatch(5, False, 1, 1)
    assert setup.bodies(topic) == [b"a"]


def test_s2_a_batch_without_messages_counts_as_one(setup: Setup) -> None:
    topic = setup.topic()
    job, late = job_for(topic, 1), job_for(topic, 1, token=2)
    assert setup.commit(job, setup.stage(job, topic)) == CommittedBatch(1, True, 0, 0)
    assert setup.commit(late, setup.stage(late, topic, b"x")) == CommittedBatch(1, False, 0, 0)
    assert setup.bodies(topic) == []


def test_s2_an_attempt_that_is_late_for_its_own_batch_ends_as_the_others(setup: Setup) -> None:
    topic = setup.topic()
    job = job_for(topic, 1)
    with closing(setup.sink.block_writer(attempt(job))) as late:
        late.send(block(topic, [b"x"]))
        setup.commit(job, setup.stage(job, topic, b"a"))
        late.send(block(topic, [b"x"]))
        part = late.finish()
    assert setup.commit(job, part) == CommittedBatch(1, True, 1, 1)
    assert setup.bodies(topic) == [b"a"]

"""Endpoints that are different brokers. Real brokers, killed; no session.

The tests call the reader's and the transport's methods as Spark does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_rocketpy.errors import CommitError, OtherStoreError
from pyspark_rocketpy.offsets import QueueRange, store_of
from pyspark_rocketpy.transport.grpc_v1.client import _clients, forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy, Subscription
from pyspark_rocketpy.transport.write_values import Attempt, BatchJob, BatchName, Block
from rocketpy_broker import LocalBroker
from tests.spark.source.test_stream_reader import planned, reader, send
from tests.support.blocks import bodies_of, wire_block
from tests.support.queues import Q0

# All tests share two brokers.
pytestmark = pytest.mark.xdist_group("other store")
_tokens = itertools.count(1)


@dataclass(frozen=True)
class Two:
    """Two brokers with a topic of the test, and a transport with both endpoints in that order."""

    first: LocalBroker
    second: LocalBroker
    topic: str
    transport: GrpcTransport

    def transport_of(self, broker: LocalBroker) -> GrpcTransport:
        return GrpcTransport(ClientConfig((broker.endpoint,), 2_000), RetryPolicy(2, 1))

    def store_of(self, broker: LocalBroker) -> str:
        queries = self.transport_of(broker).offset_queries()
        queries.bounds(Subscription((self.topic,), None, ""))
        return queries.store_id

    def count(self, broker: LocalBroker) -> int:
        """Returns the number of messages in queue 0 of the topic."""
        queries = self.transport_of(broker).offset_queries()
        return queries.bounds(Subscription((self.topic,), None, ""))[self.topic][Q0].max_offset

    def block(self, *bodies: bytes) -> Block:
        """Returns a block of messages for queue 0."""
        wire = wire_block(self.topic, bodies)
        return Block(self.topic, 0, wire.record_sizes, wire.records)

    def stage(self, transport: GrpcTransport, *bodies: bytes) -> bytes:
        """Stages one task of the test's job; returns its part of the commit."""
        attempt = Attempt(BatchJob(BatchName(self.topic, 7), 11), 0, next(_tokens))
        with closing(transport.block_writer(attempt)) as writer:
            writer.send(self.block(*bodies))
            return writer.finish()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LocalBroker]]:
    folder = tmp_path_factory.mktemp("stores")
    with LocalBroker(folder / "a") as first, LocalBroker(folder / "b") as second:
        yield [first, second]


@pytest.fixture
def two(brokers: list[LocalBroker]) -> Iterator[Two]:
    first, second = brokers
    if first._process is None:  # An earlier test has killed it.
        first.start()
    topic = f"T-{next(_tokens)}"
    for broker in brokers:
        broker.create_topic(topic, queues=1)
    config = ClientConfig((first.endpoint, second.endpoint), 2_000)
    yield Two(first, second, topic, GrpcTransport(config, RetryPolicy(2, 1)))
    endpoints = {first.endpoint, second.endpoint}
    for each in [each for each in _clients if endpoints.intersection(each.endpoints)]:
        forget_client(each)


def test_s9_a_range_that_was_begun_at_one_broker_goes_on_at_no_other(two: Two) -> None:
    bodies = [b"%05d" % number + bytes(20_000) for number in range(400)]
    send(two.first, two.topic, *bodies)
    send(two.second, two.topic, *[b"other" + bytes(20_000)] * 400)
    store_id = two.store_of(two.first)
    options = PullOptions("g", 64 << 10, True, store_id=store_id)
    found: list[bytes] = []

    def pull_all() -> None:
        with closing(two.transport.pull(QueueRange(two.topic, 0, 0, 400), options)) as chunks:
            for chunk in chunks:
                if not found:
                    two.first.kill()
                found.extend(bodies_of(bytes(chunk.records), chunk.sizes))

    with pytest.raises(OtherStoreError, match=store_id) as refusal:
        pull_all()
    assert 0 < len(found) < 400
    assert found == bodies[: len(found)]
    assert two.store_of(two.second) in str(refusal.value)


@pytest.mark.parametrize("fails", [True, False])
def test_s9_a_checkpoint_of_another_store_is_refused_whatever_the_options_say(
    two: Two, fails: bool
) -> None:
    send(two.first, two.topic, b"a")
    send(two.second, two.topic, b"b", b"c")
    source = reader(two.first, two.topic)
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert store_of(start) == store_of(end) == two.store_of(two.first)
    other = reader(two.second, two.topic, failOnDataLoss=fails)
    both = f"{two.store_of(two.first)}.*{two.store_of(two.second)}.*new checkpointLocation"
    with pytest.raises(OtherStoreError, match=both):
        other.latestOffset(end, other.getDefaultReadLimit())
    again = reader(two.second, two.topic, failOnDataLoss=fails)
    # Spark does so for a batch that is logged and not committed: it asks for the first offset
    # again.
    with pytest.raises(OtherStoreError, match=both):
        again.partitions(again.initialOffset(), end)


def test_s9_an_offset_of_an_older_connector_is_of_any_store_and_the_next_one_is_not(
    two: Two,
) -> None:
    send(two.first, two.topic, b"a", b"b")
    source = reader(two.first, two.topic)
    old: dict[str, Any] = {
        "v": 1,
        "offsetTable": {f"{two.topic}@pyspark-rocketpy": {"0": 1}},
        "base": {},
    }
    end = source.latestOffset(old, source.getDefaultReadLimit())
    assert store_of(old) == ""
    assert store_of(end) == two.store_of(two.first)
    assert planned(source, old, end) == [(two.topic, 0, 1, 2)]


def test_s9_a_commit_gets_to_no_broker_but_the_one_that_has_the_blocks(two: Two) -> None:
    part = two.stage(two.transport, b"x", b"y")
    # As if the other broker had these very blocks, and the first one's answer were lost.
    two.stage(two.transport_of(two.second), b"x", b"y")
    store_id = two.store_of(two.first)
    two.first.kill()
    with pytest.raises(OtherStoreError, match=f"{store_id}.*{two.store_of(two.second)}"):
        two.transport.commit_batch([part], 7)
    assert two.count(two.second) == 0
    two.first.start()
    assert two.transport.commit_batch([part], 7).is_own
    assert two.count(two.first) == 2


def test_s9_tasks_that_have_staged_at_two_brokers_commit_at_none(two: Two) -> None:
    parts = [two.stage(two.transport_of(broker), b"x") for broker in (two.first, two.second)]
    both = f"{two.store_of(two.first)} and {two.store_of(two.second)}"
    with pytest.raises(CommitError, match=both):
        two.transport.commit_batch(parts, 7)
    assert two.count(two.first) == two.count(two.second) == 0


def test_s9_blocks_of_one_task_are_not_shared_out_among_brokers(two: Two) -> None:
    with closing(two.transport.block_writer(None)) as writer:
        writer.send(two.block(b"x"))
        writer.finish()
        two.first.kill()
        writer.send(two.block(b"x"))
        with pytest.raises(OtherStoreError, match=two.store_of(two.second)):
            writer.finish()
    assert two.count(two.second) == 0

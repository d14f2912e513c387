"""Queries that take several calls, due to limits: the same answers as in one call.

The connector's queries go to the services of a broker, without a network between them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy
from rocketpy_broker.broker import Broker
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.queues.units import UNIT
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import WORK_MS_MAX
from rocketpy_proto.model.configs import TopicConfig
from tests.support.blocks import wire_block

CONFIG = ClientConfig(("h:1",), 100)
METHODS = ("SearchOffsets", "FindKeys", "MeasureRanges", "LimitRanges")
FIXED = len(wire_block("T0", [b""]).records)
TOPICS = ("T0", "T1", "T2")
BODY_BYTES_MAX = 700
# More than the work limit of a call.
SLOW_MS = 600


class LookedAtClock(ManualClock):
    """A clock that moves by `step_ms` at each read of the monotonic time."""

    step_ms = 0

    def monotonic_ms(self) -> float:
        self.advance(self.step_ms)
        return super().monotonic_ms()


class CalledBroker:
    """A broker with four queues for each topic; counts the calls that its client makes."""

    def __init__(self, folder: Path, file_units: int) -> None:
        self.clock = LookedAtClock()
        config = BrokerConfig(
            folder,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            commit_log_segment_bytes=1 << 17,
            consume_queue_file_bytes=file_units * UNIT.itemsize,
        )
        self._broker = Broker(config, self.clock)
        self.store = self._broker.store
        self.store.open()
        topics = self._broker.services.topics
        for topic in TOPICS:
            asyncio.run(topics.update(TopicConfig(topic, 4, 4, 6), create_only=True))
        topics.saver.close()
        protocol = self._broker.services.rocketpy_v1(config)
        self._handlers = protocol.methods["rocketpy.v1.Broker"]
        self.broker = SimpleNamespace(**{name: partial(self._call, name) for name in METHODS})
        self.call_count = 0

    def queries(self, step_ms: int) -> GrpcOffsetQueries:
        """Returns a client's queries; the clock moves by `step_ms` at each look."""
        self.clock.step_ms = step_ms
        self.call_count = 0
        return GrpcOffsetQueries(CONFIG, RetryPolicy(0, 0), client_of=self._client)

    def _client(self, _config: ClientConfig) -> GrpcClient:
        return cast("GrpcClient", self)

    def query(self, method: Any, request: object, timeout_ms: int) -> Any:
        """Calls the broker's services as the client does; they check the request as usual."""
        assert timeout_ms >= WORK_MS_MAX
        return method(self.broker)(request)

    def _call(self, method: str, request: object) -> Any:
        self.call_count += 1
        answer: Any = self._handlers[method].unary_unary
        context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")
        return asyncio.run(answer(request, context))

    def append(self, topic: str, queue_id: int, bodies: Sequence[bytes], **more: Any) -> None:
        """Appends messages that are visible at once, 10 ms after the earlier ones."""
        self.clock.advance(10)
        self.store.append(QueueKey(topic, queue_id), wire_block(topic, bodies, **more).parsed())


@contextmanager
def called_broker(folder: Path, file_units: int = 100) -> Iterator[CalledBroker]:
    """Yields a broker with `file_units` units in a file of a queue, so in a unit range at most."""
    broker = CalledBroker(folder, file_units)
    try:
        yield broker
    finally:
        broker.store.close()


def ranges_of(queues: Sequence[Sequence[object]]) -> list[QueueRange]:
    return [
        QueueRange("T0", queue_id, 0, len(messages)) for queue_id, messages in enumerate(queues)
    ]


@settings(max_examples=20)
@given(
    queues=st.lists(st.lists(st.integers(0, BODY_BYTES_MAX), max_size=15), min_size=1, max_size=4),
    share=st.integers(1, 120),
    step_ms=st.integers(0, SLOW_MS),
    file_units=st.sampled_from([1, 2, 5, 100]),
)
def test_k04_the_limit_holds_for_any_sizes_and_no_byte_of_it_is_lost_needlessly(
    tmp_path_factory: pytest.TempPathFactory,
    queues: list[list[int]],
    share: int,
    step_ms: int,
    file_units: int,
) -> None:
    totals = [list(accumulate((FIXED + size for size in sizes), initial=0)) for sizes in queues]
    all_bytes = sum(total[-1] for total in totals)
    bytes_max = max(all_bytes * share // 100, 1)
    with called_broker(tmp_path_factory.mktemp("store"), file_units) as broker:
        for queue_id, sizes in enumerate(queues):
            for size in sizes:
                broker.append("T0", queue_id, [bytes(size)])
        ends = broker.queries(step_ms).limit_bytes(ranges_of(queues), bytes_max)
        assert broker.queries(0).limit_bytes(ranges_of(queues), bytes_max) == ends
    given_bytes = sum(total[end] for end, total in zip(ends, totals, strict=True))
    assert given_bytes <= bytes_max or sum(ends) == 1
    assert sum(ends) > 0 or all_bytes == 0
    if file_units > max(map(len, queues)):
        # Nothing was estimated: what is missing is less than one message of each queue.
        least = min(bytes_max, all_bytes) - len(queues) * (FIXED + BODY_BYTES_MAX)
        assert given_bytes >= least


def test_k04_a_range_that_takes_many_calls_is_cut_as_in_one(tmp_path: Path) -> None:
    with called_broker(tmp_path, file_units=3) as broker:
        for queue_id, count in ((0, 20), (1, 5), (2, 11)):
            broker.append("T0", queue_id, [b"x" * 100] * count)
        ranges = ranges_of([b"x" * 20, b"x" * 5, b"x" * 11])
        for bytes_max in (1, 3_000, 100 * (FIXED + 100)):
            in_one_go = broker.queries(0).limit_bytes(ranges, bytes_max)
            assert broker.call_count <= 2
            assert broker.queries(SLOW_MS).limit_bytes(ranges, bytes_max) == in_one_go
            assert broker.call_count >= 3


def test_k05_a_search_that_takes_many_calls_finds_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    with called_broker(tmp_path) as broker:
        begin_ms = broker.clock.now_ms()
        for _ in range(40):
            broker.append(chance.choice(TOPICS), chance.randrange(4), [b"x"])
        times = [
            QueueTime(topic, queue_id, begin_ms + chance.randrange(500))
            for topic in TOPICS
            for queue_id in range(4)
        ]
        in_one_go = broker.queries(0).search(times)
        assert broker.call_count == 1
        assert len(set(in_one_go)) > 2
        # A call looks at the clock once, and again after each queue.
        for step_ms, call_count in ((100, 3), (SLOW_MS, 12)):
            assert broker.queries(step_ms).search(times) == in_one_go
            assert broker.call_count == call_count


def test_k05_keys_that_take_many_calls_are_found_in_the_same_parts(tmp_path: Path) -> None:
    chance = random.Random(6)
    with called_broker(tmp_path) as broker:
        for topic in TOPICS:
            for queue_id in range(4):
                keys = [" ".join(chance.choices("abcdefgh", k=2)) for _ in range(20)]
                broker.append(topic, queue_id, [b"x"] * 20, keys=keys)
        ranges = [
            QueueRange(topic, queue_id, begin, begin + 7)
            for topic in TOPICS
            for queue_id in range(4)
            for begin in (0, 7)
        ]
        for order in (ranges, chance.sample(ranges, len(ranges))):
            in_one_go = broker.queries(0).find_keys(order, ["a", "z", "b"])
            assert broker.call_count == 1
            assert in_one_go != order
            # Two topics are not looked up in the time of one call, and one is.
            assert broker.queries(80).find_keys(order, ["a", "z", "b"]) == in_one_go
            assert broker.call_count >= len(TOPICS)


def test_k05_what_takes_longer_to_look_up_than_a_call_may_work_comes_back_whole(
    tmp_path: Path,
) -> None:
    with called_broker(tmp_path) as broker:
        for topic in TOPICS:
            broker.append(topic, 0, [b"x"], keys=["k"])
        ranges = [QueueRange(topic, 0, 0, 5) for topic in TOPICS]
        assert broker.queries(SLOW_MS).find_keys(ranges, ["k"]) == ranges
        assert broker.call_count == len(TOPICS)


def test_k04_k05_more_queues_than_a_call_takes_are_asked_for_in_parts(tmp_path: Path) -> None:
    with called_broker(tmp_path) as broker:
        broker.append("T0", 0, [b"x"] * 9, keys=["k", *["other"] * 8])
        ranges = [QueueRange("T0", 0, begin % 9, 9) for begin in range(2_500)]
        queries = broker.queries(0)
        assert queries.limit_bytes(ranges, 1 << 30) == [9] * 2_500
        assert broker.call_count == 3
        found = queries.find_keys(ranges, ["k"])
        assert found == [QueueRange("T0", 0, 0, 1)] * len([r for r in ranges if r.begin == 0])
        assert broker.call_count == 6
        assert queries.search([QueueTime("T0", 0, 0)] * 2_500) == [0] * 2_500
        assert broker.call_count == 9

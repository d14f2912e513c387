"""Queries in many calls, to a broker that does the least that each call allows.

It answers for one queue a call, and for one message of a long range. Every record has `RECORD`
bytes, and its place in the log follows from queue and offset. It never answers for more than was
requested.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.grpc_v1.resumed_calls import CallProgress, ask_for_all
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy
from rocketpy_proto.call_limits import KEYS_BYTES_MAX, KEYS_MAX
from rocketpy_proto.rocketpy.v1 import broker_pb2

RECORD = 100
LOSS = grpc.StatusCode.DEADLINE_EXCEEDED
RANGES = [QueueRange("T", queue_id, 0, 4) for queue_id in range(7)]
TIMES = [QueueTime("T", queue_id, 0) for queue_id in range(7)]


class SlowBroker:
    """A client and its broker; it fails every other call, and all from call `away_from` on."""

    def __init__(self, away_from: int = 1 << 30) -> None:
        self._away_from = away_from
        self._call_count = 0
        self.broker = SimpleNamespace(
            SearchOffsets=self._search,
            FindKeys=self._find_keys,
            MeasureRanges=self._measure,
            LimitRanges=self._limit,
        )

    def of(self, _config: ClientConfig) -> GrpcClient:
        return cast("GrpcClient", self)

    def query(self, method: Any, request: Any, timeout_ms: int) -> Any:
        try:
            return method(self.broker)(request, timeout_ms)
        except grpc.RpcError as error:
            raise ConnectionFailedError("no broker answers at h:1") from error

    def _enter(self) -> None:
        self._call_count += 1
        if self._call_count >= self._away_from or self._call_count % 2 == 0:
            raise grpc.RpcError

    def _search(
        self, request: broker_pb2.SearchOffsetsRequest, timeout_ms: int
    ) -> broker_pb2.SearchOffsetsResponse:
        self._enter()
        offset = broker_pb2.FoundOffset(found=True, offset=request.queues[0].queue_id)
        return broker_pb2.SearchOffsetsResponse(offsets=[offset])

    def _find_keys(
        self, request: broker_pb2.FindKeysRequest, timeout_ms: int
    ) -> broker_pb2.FindKeysResponse:
        self._enter()
        return broker_pb2.FindKeysResponse(ranges=request.ranges[:1], range_count=1)

    def _measure(
        self, request: broker_pb2.MeasureRangesRequest, timeout_ms: int
    ) -> broker_pb2.MeasureRangesResponse:
        self._enter()
        part, count_left = request.ranges[0], request.ranges[0].end - request.ranges[0].begin - 1
        measured = broker_pb2.MeasuredRange(
            end=part.begin + 1,
            bytes=RECORD,
            offset_count=1,
            offset_count_left=count_left,
            first_bytes=RECORD,
            first_physical_offset=RECORD * (10 * part.queue_id + part.begin),
        )
        goes_on = count_left > 0 and request.bytes_max >= RECORD
        return broker_pb2.MeasureRangesResponse(ranges=[measured], goes_on=goes_on)

    def _limit(
        self, request: broker_pb2.LimitRangesRequest, timeout_ms: int
    ) -> broker_pb2.LimitRangesResponse:
        self._enter()
        assert len(request.ranges) == len(request.bytes_max)
        fits = request.bytes_max[0] >= RECORD
        end = request.ranges[0].begin + fits
        return broker_pb2.LimitRangesResponse(
            ends=[end], bytes=[RECORD * fits], goes_on=fits and end < request.ranges[0].end
        )


def queries_to(broker: SlowBroker) -> GrpcOffsetQueries:
    return GrpcOffsetQueries(ClientConfig(("h:1",), 100), RetryPolicy(1, 1), client_of=broker.of)


def test_k03_queries_come_to_an_end_though_every_other_call_is_cut_off(
    waits_ms: list[int],
) -> None:
    assert queries_to(SlowBroker()).search(TIMES) == list(range(7))
    assert queries_to(SlowBroker()).find_keys(RANGES, ["k"]) == RANGES
    assert queries_to(SlowBroker()).limit_bytes(RANGES, 28 * RECORD) == [4] * 7
    assert queries_to(SlowBroker()).limit_bytes(RANGES, 14 * RECORD) == [2] * 7
    assert queries_to(SlowBroker()).limit_bytes(RANGES, 1) == [1, 0, 0, 0, 0, 0, 0]
    assert set(waits_ms) == {1}


@pytest.mark.parametrize(
    ("count", "length", "is_sent"),
    [
        (KEYS_MAX, 1, True),
        (KEYS_MAX + 1, 1, False),
        (2, KEYS_BYTES_MAX // 2, True),
        (2, KEYS_BYTES_MAX // 2 + 1, False),
    ],
)
def test_k05_keys_beyond_what_a_broker_looks_up_are_not_sent(
    count: int, length: int, *, is_sent: bool
) -> None:
    queries = queries_to(SlowBroker(away_from=1))
    keys = ["k" * length] * count
    if is_sent:
        with pytest.raises(ConnectionFailedError):
            queries.find_keys(RANGES, keys)
    else:
        assert queries.find_keys(RANGES, keys) == RANGES


@pytest.mark.parametrize(
    ("query", "away_from", "words"),
    [
        (lambda queries: queries.search(TIMES), 7, "3 of 7 queues were searched"),
        (lambda queries: queries.find_keys(RANGES, ["k"]), 3, "1 of 7 ranges were searched"),
        # Calls 1, 3, 5 and 7 measure the first range.
        (lambda queries: queries.limit_bytes(RANGES, 2_800), 17, "2 of 7 ranges were measured"),
        (lambda queries: queries.limit_bytes(RANGES, 50), 23, "3 of 7 ranges were limited"),
    ],
)
def test_a_query_that_is_given_up_says_how_far_it_came(
    waits_ms: list[int], query: Any, away_from: int, words: str
) -> None:
    with pytest.raises(ConnectionFailedError, match=f"no broker answers at h:1; {words}$"):
        query(queries_to(SlowBroker(away_from)))


def test_a_broker_that_answers_nothing_is_an_error() -> None:
    with pytest.raises(
        BrokerError, match="the broker's answer makes no progress; 0 of 1 things were done"
    ):
        ask_for_all(["a"], lambda _first, part: CallProgress(0, part[0]), "things were done")


def test_entries_that_are_begun_are_asked_for_again_but_for_what_is_done() -> None:
    asked: list[tuple[int, list[str]]] = []

    def ask(first: int, part: Sequence[str]) -> CallProgress[str]:
        asked.append((first, list(part)))
        return CallProgress(0, part[0][1:]) if len(part[0]) > 1 else CallProgress(1)

    ask_for_all(["a", "bcd", "e"], ask, "words were read")
    assert asked == [
        (0, ["a", "bcd", "e"]),
        (1, ["bcd", "e"]),
        (1, ["cd", "e"]),
        (1, ["d", "e"]),
        (2, ["e"]),
    ]


@pytest.mark.parametrize("count", [-1, 0, 8, 1 << 30])
def test_keys_that_are_looked_for_in_no_range_or_in_too_many_are_an_error(count: int) -> None:
    class Counting(SlowBroker):
        def _find_keys(
            self, request: broker_pb2.FindKeysRequest, timeout: float
        ) -> broker_pb2.FindKeysResponse:
            return broker_pb2.FindKeysResponse(range_count=count)

    with pytest.raises(BrokerError, match=f"it has {count} entries, not 1 to 7"):
        queries_to(Counting()).find_keys(RANGES, ["k"])


@pytest.mark.parametrize("count", [0, 8])
def test_times_that_are_searched_in_no_queue_or_in_too_many_are_an_error(count: int) -> None:
    class Searching(SlowBroker):
        def _search(
            self, request: broker_pb2.SearchOffsetsRequest, timeout: float
        ) -> broker_pb2.SearchOffsetsResponse:
            return broker_pb2.SearchOffsetsResponse(offsets=[broker_pb2.FoundOffset()] * count)

    with pytest.raises(BrokerError, match=f"it has {count} entries, not 1 to 7"):
        queries_to(Searching()).search(TIMES)


class WrongBroker(SlowBroker):
    """A broker that answers range queries with these numbers in turn; 100 calls fail the test."""

    def __init__(self, *answers: int, goes_on: bool = True) -> None:
        super().__init__()
        self._answers = itertools.cycle(answers)
        self._goes_on = goes_on
        self._measures = True

    def _enter(self) -> None:
        self._call_count += 1
        assert self._call_count < 100, "it is asked without end"

    def _measure(
        self, request: broker_pb2.MeasureRangesRequest, timeout: float
    ) -> broker_pb2.MeasureRangesResponse:
        self._enter()
        measured = broker_pb2.MeasuredRange(end=next(self._answers), bytes=1, offset_count=1)
        return broker_pb2.MeasureRangesResponse(ranges=[measured], goes_on=self._goes_on)


class WrongLimits(WrongBroker):
    """A broker that measures correctly and limits wrongly."""

    def _measure(
        self, request: broker_pb2.MeasureRangesRequest, timeout: float
    ) -> broker_pb2.MeasureRangesResponse:
        ranges = [
            broker_pb2.MeasuredRange(end=part.end, bytes=400, offset_count=4, first_bytes=100)
            for part in request.ranges
        ]
        return broker_pb2.MeasureRangesResponse(ranges=ranges)

    def _limit(
        self, request: broker_pb2.LimitRangesRequest, timeout: float
    ) -> broker_pb2.LimitRangesResponse:
        self._enter()
        return broker_pb2.LimitRangesResponse(
            ends=[next(self._answers)], bytes=[0], goes_on=self._goes_on
        )


@pytest.mark.parametrize("kind", [WrongBroker, WrongLimits])
@pytest.mark.parametrize(
    ("answers", "goes_on"),
    [((3, 1), True), ((2,), True), ((-1,), True), ((-1,), False), ((5,), False), ((5,), True)],
)
def test_ends_to_and_fro_or_outside_of_their_ranges_are_an_error(
    kind: type[WrongBroker], answers: tuple[int, ...], *, goes_on: bool
) -> None:
    queries = queries_to(kind(*answers, goes_on=goes_on))
    with pytest.raises(
        BrokerError, match=r"cannot be used: |the broker's answer makes no progress; 0 of \d ranges"
    ):
        queries.limit_bytes(RANGES, 300)


def test_a_limit_that_is_missing_is_an_error() -> None:
    class Short(WrongLimits):
        def _limit(
            self, request: broker_pb2.LimitRangesRequest, timeout: float
        ) -> broker_pb2.LimitRangesResponse:
            self._enter()
            return broker_pb2.LimitRangesResponse(bytes=[1] * 9)

    fault = "LimitRanges cannot be used: it has 0 entries, not 1 to 7"
    with pytest.raises(BrokerError, match=fault):
        queries_to(Short(1)).limit_bytes(RANGES, 300)


@pytest.mark.parametrize(
    "found",
    [
        [("U", 0, 0, 1)],
        [("T", 9, 0, 1)],
        [("T", 0, 0, 5)],
        [("T", 0, -1, 1)],
        [("T", 0, 3, 2)],
        [("T", 0, 2, 3), ("T", 0, 2, 3)],
        [("T", 0, 2, 3), ("T", 0, 0, 1)],
        [("T", 1, 0, 1)],
    ],
    ids=["topic", "queue", "beyond", "before", "backwards", "twice", "falling", "not looked at"],
)
def test_keys_are_found_only_in_the_ranges_that_were_looked_through(
    found: list[tuple[str, int, int, int]],
) -> None:
    class Finding(SlowBroker):
        def _find_keys(
            self, request: broker_pb2.FindKeysRequest, timeout: float
        ) -> broker_pb2.FindKeysResponse:
            ranges = [
                broker_pb2.OffsetRange(topic=topic, queue_id=queue_id, begin=begin, end=end)
                for topic, queue_id, begin, end in found
            ]
            return broker_pb2.FindKeysResponse(ranges=ranges, range_count=1)

    with pytest.raises(BrokerError, match="was not requested"):
        queries_to(Finding()).find_keys(RANGES, ["k"])


def test_keys_may_be_found_in_several_parts_of_a_range() -> None:
    class Finding(SlowBroker):
        def _find_keys(
            self, request: broker_pb2.FindKeysRequest, timeout: float
        ) -> broker_pb2.FindKeysResponse:
            part = request.ranges[0]
            ranges = [
                broker_pb2.OffsetRange(topic="T", queue_id=part.queue_id, begin=at, end=at + 1)
                for at in (0, 1, 3)
            ]
            return broker_pb2.FindKeysResponse(ranges=ranges, range_count=1)

    found = queries_to(Finding()).find_keys(RANGES[:2], ["k"])
    assert found == [QueueRange("T", queue, at, at + 1) for queue in (0, 1) for at in (0, 1, 3)]

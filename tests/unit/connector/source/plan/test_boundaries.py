"""The start of a query and the end of a batch: forms, precedence and meaning of the options."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyspark_rocketpy.errors import OffsetError, OptionError, RocketpyError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source import checks
from pyspark_rocketpy.source.plan import boundaries
from pyspark_rocketpy.transport.values import QueueTime
from tests.support.queues import Q0, Q1

BOUNDS: Bounds = {"T": {Q0: QueueBounds(10, 20, 15), Q1: QueueBounds(0, 5, -1)}}


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"endpoints": "h:1", "topic": "T", **given})


def search(times: Sequence[QueueTime]) -> list[int | None]:
    """Searches like a broker that stored message n at time n, without messages after time 20."""
    return [one.timestamp_ms if one.timestamp_ms < 20 else None for one in times]


def begin(**given: str) -> Positions:
    boundary = boundaries.starting(options(**given), boundaries.LATEST_NAME)
    return boundaries.resolve(boundary, BOUNDS, search)


def end(**given: str) -> Positions:
    return boundaries.resolve(boundaries.ending(options(**given)), BOUNDS, search)


@pytest.mark.parametrize(
    ("name", "offsets"),
    [
        ("earliest", {Q0: 10, Q1: 0}),
        ("latest", {Q0: 20, Q1: 5}),
        ("committed", {Q0: 15, Q1: 0}),
        ("EARLIEST", {Q0: 10, Q1: 0}),
        ('{"T":{"0":12,"1":-1}}', {Q0: 12, Q1: 5}),
        ('{"T":{"0":-2,"1":3}}', {Q0: 10, Q1: 3}),
    ],
)
def test_k05_names_and_numbers_stand_for_offsets(
    name: str, offsets: dict[BrokerQueue, int]
) -> None:
    assert begin(startingOffsets=name) == {"T": offsets}


def test_k05_queues_that_are_not_named_follow_the_default() -> None:
    assert begin(startingOffsets='{"T":{"0":12}}') == {"T": {Q0: 12, Q1: 5}}
    assert begin(startingOffsets="{}") == {"T": {Q0: 20, Q1: 5}}
    batch = boundaries.starting(options(startingOffsets='{"T":{"1":2}}'), boundaries.EARLIEST_NAME)
    assert boundaries.resolve(batch, BOUNDS, search) == {"T": {Q0: 10, Q1: 2}}
    assert end(endingOffsets='{"T":{"1":2}}') == {"T": {Q0: 20, Q1: 2}}


def test_k05_queues_without_a_time_of_their_own_follow_the_offsets() -> None:
    by_queue = '{"T":{"0":13}}'
    assert begin(startingOffsetsByTimestamp=by_queue) == {"T": {Q0: 13, Q1: 5}}
    both = {"startingOffsets": '{"T":{"1":3}}', "startingOffsetsByTimestamp": by_queue}
    assert begin(**both) == {"T": {Q0: 13, Q1: 3}}
    assert end(endingOffsetsByTimestamp=by_queue) == {"T": {Q0: 13, Q1: 5}}


def test_k05_a_time_for_all_goes_before_times_by_queue_and_both_before_offsets() -> None:
    by_queue = '{"T":{"0":13,"1":4}}'
    assert begin(startingOffsets="earliest", startingOffsetsByTimestamp=by_queue) == {
        "T": {Q0: 13, Q1: 4}
    }
    assert begin(startingTimestamp="12", startingOffsetsByTimestamp=by_queue) == {
        "T": {Q0: 12, Q1: 12}
    }
    assert end(endingOffsetsByTimestamp=by_queue) == {"T": {Q0: 13, Q1: 4}}
    assert end(endingTimestamp="12", endingOffsetsByTimestamp=by_queue) == {"T": {Q0: 12, Q1: 12}}
    assert end() == {"T": {Q0: 20, Q1: 5}}


def test_k05_a_time_without_a_message_is_an_error_or_the_end() -> None:
    with pytest.raises(OffsetError) as caught:
        begin(startingTimestamp="20")
    for part in ("startingTimestamp", "queue 0", "'T'", "20 ms", boundaries.STRATEGY_OPTION):
        assert part in str(caught.value)
    latest = {"T": {Q0: 20, Q1: 5}}
    assert begin(startingTimestamp="20", startingOffsetsByTimestampStrategy="latest") == latest
    assert end(endingTimestamp="20") == latest


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"startingOffsets": '{"T":{"0":1,"1":1,"2":1}}'}, "names queue 2 .* queues 0 to 1"),
        ({"startingOffsets": '{"U":{"0":1}}'}, "names topic 'U', which the query does not read"),
        ({"startingOffsetsByTimestamp": '{"T":{"3":1}}'}, "names queue 3"),
        ({"startingOffsets": '{"T":{"0":21,"1":1}}'}, "beyond its end, limit 20"),
    ],
)
def test_k05_offsets_that_do_not_fit_the_queues_are_named(given: dict[str, str], word: str) -> None:
    with pytest.raises(OffsetError, match=word):
        begin(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "first"},
        {"startingOffsets": "{"},
        {"startingOffsets": "first", "startingTimestamp": "5"},
        {"startingOffsetsByTimestamp": "5"},
        {"startingOffsetsByTimestamp": "latest"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"T":{"0":-2}}'},
        {"endingOffsetsByTimestamp": '{"T":{"0":1.5}}'},
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        {"allocation": "config"},
        {"allocation": "circle", "allocationConfig": "[]"},
        {"allocationConfig": "[]"},
        {"allocation": "machineRoom"},
        {"machineRooms": "r1"},
        {"allocation": "config", "allocationConfig": "[[3]]"},
        {"allocation": "config", "allocationConfig": "{"},
        {"allocation": "config", "allocationConfig": '["T:0"]'},
        {"allocation": "config", "allocationConfig": '[["T:0"],["T:0"]]'},
        {"allocation": "config", "allocationConfig": '[["T:0"]]', "minPartitions": "2"},
    ],
    ids=str,
)
def test_k05_malformed_options_are_found_without_a_broker(given: dict[str, str]) -> None:
    with pytest.raises(RocketpyError) as caught:
        checks.check(options(**given))
    assert any(name in str(caught.value) for name in given)


@pytest.mark.parametrize("option", checks.BATCH_OPTIONS)
def test_k05_a_stream_refuses_an_end(option: str) -> None:
    checks.refuse_batch_options(["endpoints", "startingOffsets"])
    with pytest.raises(OptionError, match=f"option {option} ends a batch"):
        checks.refuse_batch_options([option.lower()])


def test_a_batch_refuses_to_be_asked_for_progress_that_it_does_not_report() -> None:
    passed_over = {"maxOffsetsPerTrigger": "1", "pollTimeout": "1s", "commitOffsets": "false"}
    checks.refuse_stream_options(passed_over)
    with pytest.raises(OptionError, match="commitOffsets is true, but a batch reports no"):
        checks.refuse_stream_options({**passed_over, "commitoffsets": " True"})


def test_k05_a_batch_that_would_end_before_it_begins_is_refused() -> None:
    given = options(startingTimestamp="12", endingOffsets='{"T":{"0":11,"1":-1}}')
    starting, ending = boundaries.starting(given, "earliest"), boundaries.ending(given)
    boundaries.require_order(starting, {"T": {Q0: 11}}, ending, {"T": {Q0: 11}})
    with pytest.raises(OffsetError) as caught:
        boundaries.require_order(starting, {"T": {Q0: 12}}, ending, {"T": {Q0: 11}})
    for part in ("queue 0", "'T'", "12 (startingTimestamp)", "11 (endingOffsets)"):
        assert part in str(caught.value)

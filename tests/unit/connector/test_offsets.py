"""Offsets as the checkpoint and the user write them."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketpy.errors import OffsetError
from pyspark_rocketpy.offsets import (
    BrokerQueue,
    Origin,
    begin_of,
    first_offset,
    next_offset,
    parse_offsets_json,
    parse_times_json,
    positions_of,
)
from tests.queues import Q0, Q1

GROUP = "my-group"


def test_k01_the_offset_json_has_the_shape_of_consumer_offset_json() -> None:
    first = first_offset({"TopicTest": {Q1: 5, Q0: 3}}, GROUP)
    assert json.dumps(first) == (
        '{"v": 1, "first": true, "offsetTable": {"TopicTest@my-group": {"0": 3, "1": 5}}}'
    )
    following = next_offset({"TopicTest": {Q0: 9, Q1: 5}}, first, GROUP)
    assert json.dumps(following) == (
        '{"v": 1, "offsetTable": {"TopicTest@my-group": {"0": 9, "1": 5}}, '
        '"base": {"TopicTest@my-group": {"0": 3, "1": 5}}}'
    )
    assert positions_of(following) == {"TopicTest": {Q0: 9, Q1: 5}}


def test_k01_the_first_batch_begins_where_its_log_says() -> None:
    logged = first_offset({"T": {Q0: 100}}, GROUP)
    end = next_offset({"T": {Q0: 115}}, logged, GROUP)
    answered_later = first_offset({"T": {Q0: 110}}, GROUP)
    assert begin_of(answered_later, end) == {"T": {Q0: 100}}


def test_k01_an_empty_first_batch_that_is_run_again_begins_at_its_end() -> None:
    end = first_offset({"T": {Q0: 100}}, GROUP)
    start = first_offset({"T": {Q0: 110}}, GROUP)
    assert begin_of(start, end) == positions_of(end)


def test_a_later_batch_begins_at_its_start() -> None:
    first = first_offset({"T": {Q0: 1}}, GROUP)
    second = next_offset({"T": {Q0: 5}}, first, GROUP)
    third = next_offset({"T": {Q0: 8}}, second, GROUP)
    assert begin_of(second, third) == {"T": {Q0: 5}}
    assert third["base"] == first["offsetTable"]


def test_a_topic_with_an_at_sign_in_the_group_is_told_apart() -> None:
    assert positions_of(first_offset({"T": {Q0: 1}}, "g")) == {"T": {Q0: 1}}


@pytest.mark.parametrize("offset", [{"v": 3, "offsetTable": {}}, {}, {"v": 1, "offsetTable": 3}])
def test_a_checkpoint_of_another_kind_is_named(offset: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="checkpoint"):
        positions_of(offset)


@pytest.mark.parametrize("offset", [0, {"logOffset": 0}, {"T": {"0": 3}}, None, "x" * 200])
def test_a_checkpoint_of_another_source_is_named(offset: object) -> None:
    with pytest.raises(OffsetError, match=r"which another source .* start with a new") as caught:
        positions_of(offset)
    assert json.dumps(offset)[:50] in str(caught.value)
    assert len(str(caught.value)) < 300
    with pytest.raises(OffsetError, match="another source"):
        begin_of(offset, first_offset({}, GROUP))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["[]", "3", '{"T":3}', '{"T":{"x":1}}', '{"T":{"0":1.5}}', "{"])
def test_malformed_offsets_are_named(text: str) -> None:
    with pytest.raises(OffsetError, match="startingOffsets"):
        parse_offsets_json("startingOffsets", text)


def test_times_before_1970_are_named() -> None:
    assert parse_times_json("endingOffsetsByTimestamp", '{"T":{"0":0}}') == {"T": {Q0: 0}}
    with pytest.raises(OffsetError, match="option endingOffsetsByTimestamp: -1 for queue 0"):
        parse_times_json("endingOffsetsByTimestamp", '{"T":{"0":-1}}')


def test_k01_where_a_new_queue_begins_is_in_the_checkpoint() -> None:
    first = first_offset({"T": {Q0: 3}}, GROUP)
    start = next_offset({"T": {Q0: 5}}, first, GROUP)
    end = next_offset(
        {"T": {Q0: 5, Q1: 30}, "U": {Q0: 4}}, start, GROUP, {"T": {Q1: 20}, "U": {Q0: 0}}
    )
    assert begin_of(start, end) == {"T": {Q0: 5, Q1: 20}, "U": {Q0: 0}}
    assert "new" not in next_offset(positions_of(end), end, GROUP, {})


def test_k01_a_queue_that_was_made_anew_begins_anew() -> None:
    start = next_offset({"T": {Q0: 30}}, first_offset({"T": {Q0: 3}}, GROUP), GROUP)
    end = next_offset({"T": {Q0: 2}}, start, GROUP, {"T": {Q0: 0}})
    assert begin_of(start, end) == {"T": {Q0: 0}}


def test_k01_a_query_that_began_without_topics_begins_with_the_new_ones() -> None:
    first = first_offset({}, GROUP)
    end = next_offset({"T": {Q0: 2}}, first, GROUP, {"T": {Q0: 1}})
    assert begin_of(first_offset({"T": {Q0: 2}}, GROUP), end) == {"T": {Q0: 1}}


@pytest.mark.parametrize(
    "text",
    [
        '{"T":{"0":1},"T":{"1":2}}',
        '{"T":{"0":1,"0":2}}',
        '{"T":{"0":1,"00":2}}',
        '{"T":{"1_0":1}}',
        '{"T":{" 1":1}}',
        '{"T":{"0":1000000000000000000000}}',
        '{"T":' * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_offsets_that_would_be_read_as_something_else_are_refused(text: str) -> None:
    with pytest.raises(OffsetError, match="option startingOffsets"):
        parse_offsets_json("startingOffsets", text)


def test_s5_a_batch_behind_a_recovery_begins_where_the_queue_was_cut() -> None:
    old, newer, untold = Origin("s", {}, "a"), Origin("s", {}, "b"), Origin("s")
    first = first_offset({"T": {Q0: 1}}, GROUP, old)
    assert first["recovery"] == "a"
    for origin, begin in ((newer, 5), (old, 15), (untold, 15)):
        start = next_offset({"T": {Q0: 15}}, first, GROUP, origin=old)
        end = next_offset({"T": {Q0: 20}}, start, GROUP, {"T": {Q0: 5}}, origin)
        assert begin_of(start, end) == {"T": {Q0: begin}}
    assert "recovery" not in end


AT_A, AT_B = BrokerQueue("broker-a", 0), BrokerQueue("broker-b", 1)


def test_queues_of_a_cluster_are_told_apart_by_their_broker() -> None:
    first = first_offset({"T": {AT_B: 7, AT_A: 1042}}, GROUP)
    assert first == {
        "v": 2,
        "first": True,
        "offsetTable": {f"T@{GROUP}": {"broker-a": {"0": 1042}, "broker-b": {"1": 7}}},
    }
    following = next_offset({"T": {AT_A: 1050, AT_B: 8}}, first, GROUP, {"T": {AT_B: 0}})
    assert positions_of(following) == {"T": {AT_A: 1050, AT_B: 8}}
    assert begin_of(first, following) == {"T": {AT_A: 1042, AT_B: 0}}


def test_offsets_of_a_cluster_are_named_by_their_broker() -> None:
    text = '{"T":{"broker-a":{"0":12},"broker-b":{"1":-1}}}'
    assert parse_offsets_json("startingOffsets", text) == {"T": {AT_A: 12, AT_B: -1}}


@pytest.mark.parametrize("of_topic", ['{"":{"0":1}}', '{"a":{"b":{"0":1}}}', '{"a":1}'])
def test_offsets_of_no_broker_are_refused(of_topic: str) -> None:
    with pytest.raises(OffsetError, match=r"in a cluster with the broker in between"):
        parse_offsets_json("startingOffsets", f'{{"T":{of_topic}}}')

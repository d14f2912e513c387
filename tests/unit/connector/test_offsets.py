"""Offsets as the checkpoint and the user write them."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from pyspark_rocketpy.errors import OffsetError
from pyspark_rocketpy.offsets import (
    BrokerQueue,
    Origin,
    Positions,
    begin_of,
    first_offset,
    kept_of,
    next_offset,
    parse_offsets_json,
    parse_times_json,
    positions_of,
)
from tests.support.queues import Q0, Q1

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
    with pytest.raises(
        OffsetError, match=r"which was not written by rocketpy; start with a new"
    ) as caught:
        positions_of(offset)
    assert json.dumps(offset)[:50] in str(caught.value)
    assert len(str(caught.value)) < 300
    with pytest.raises(OffsetError, match="not written by rocketpy"):
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
    with pytest.raises(OffsetError, match=r"or on a cluster, with broker names"):
        parse_offsets_json("startingOffsets", f'{{"T":{of_topic}}}')


GOOD = next_offset(
    {"T": {Q0: 9, Q1: 5}},
    first_offset({"T": {Q0: 3}}, GROUP),
    GROUP,
    {"T": {Q1: 2}},
    Origin("s", {"T": 7}, "r"),
    {"U": {Q0: 4}},
)
KEY = f"T@{GROUP}"
WRONG_TABLES: tuple[object, ...] = (
    None,
    3,
    [],
    "x",
    {KEY: 3},
    {KEY: [1]},
    {KEY: {"0": 1 << 70}},
    {KEY: {"0": 1 << 63}},
    {KEY: {"0": -1}},
    {KEY: {"0": 1.0}},
    {KEY: {"0": "1"}},
    {KEY: {"0": True}},
    {KEY: {"0": None}},
    {KEY: {"x": 1}},
    {KEY: {"": 1}},
    {KEY: {"": {"0": 1}, "1": 1}},
    {KEY: {"00": 1}},
    {KEY: {" 0": 1}},
    {KEY: {"-1": 1}},
    {KEY: {str(1 << 31): 1}},
    {KEY: {"9" * 5_000: 1}},
    {KEY: {"a": {"b": {"0": 1}}}},
    {KEY: {"a": {"0": 1.5}}},
    {"T": {"0": 1}},
    {f"@{GROUP}": {"0": 1}},
    {f"\ud800@{GROUP}": {"0": 1}},
    {KEY: {"0": 1}, "T@another-group": {"0": 2}},
)


@pytest.mark.parametrize("field", ["offsetTable", "kept", "new", "base"])
@pytest.mark.parametrize("table", WRONG_TABLES, ids=lambda table: repr(table)[:40])
def test_a_table_of_the_checkpoint_that_cannot_be_read_is_named(field: str, table: object) -> None:
    wrong = {**GOOD, field: table}
    start = first_offset({"T": {Q0: 3}}, GROUP) if field == "base" else wrong
    with pytest.raises(OffsetError, match=f"field {field} of the checkpoint's offset") as caught:
        begin_of(start, wrong)
    assert len(str(caught.value)) < 600
    assert "new checkpointLocation" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", "x"),
        ("epochs", []),
        ("epochs", {"T": "7"}),
        ("epochs", {"T": 1 << 70}),
        ("epochs", {"T": -1}),
        ("epochs", {"T": 1.5}),
        ("epochs", {"T": None}),
        ("epochs", {"T": {"0": 1}}),
        ("store", 3),
        ("store", None),
        ("store", "\ud800"),
        ("recovery", {}),
        ("recovery", "\ud800"),
        ("first", "yes"),
        ("first", 1),
        ("new", {KEY: {"7": 1}}),
        ("new", {f"V@{GROUP}": {"0": 1}}),
    ],
)
def test_a_field_of_the_checkpoint_that_cannot_be_read_is_named(field: str, value: object) -> None:
    wrong = {**GOOD, field: value}
    with pytest.raises(OffsetError, match=f"field {field} of the checkpoint's offset"):
        begin_of(wrong if field == "first" else GOOD, wrong)


@pytest.mark.parametrize("version", [True, 1.0, "1", None, 3, {}])
def test_a_checkpoint_s_version_is_a_number_that_is_known(version: object) -> None:
    with pytest.raises(OffsetError, match="the checkpoint's offset has version"):
        positions_of({**GOOD, "v": version})


@pytest.mark.parametrize("missing", ["offsetTable"])
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    wrong = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(OffsetError, match=f"field {missing} of the .* is missing"):
        positions_of(wrong)


def test_the_largest_offset_and_queue_id_are_read() -> None:
    table = {KEY: {str((1 << 31) - 1): (1 << 63) - 1, "0": 0}}
    assert positions_of({"v": 1, "offsetTable": table}) == {
        "T": {BrokerQueue("", (1 << 31) - 1): (1 << 63) - 1, Q0: 0}
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"T":{"0":-3}}',
        '{"T":{"0":true}}',
        '{"T":{"0":NaN}}',
        '{"T":{"0":Infinity}}',
        '{"T":{"0":null}}',
        '{"T":{"2147483648":1}}',
        '{"T":{"0":' + "9" * 5_000 + "}}",
        "",
        '"T"',
        "null",
    ],
    ids=lambda text: text[:30],
)
def test_offsets_that_are_none_are_refused_in_few_words(text: str) -> None:
    with pytest.raises(OffsetError, match="option startingOffsets") as caught:
        parse_offsets_json("startingOffsets", text)
    assert len(str(caught.value)) < 600


def test_times_for_queues_are_milliseconds_or_iso() -> None:
    text = '{"T":{"0":"2026-01-01T01:00+01:00","1":1767225600000},"U":{"a":{"0":"2026-01-01"}}}'
    zone = dt.timezone(dt.timedelta(hours=9))
    assert parse_times_json("startingOffsetsByTimestamp", text, zone) == {
        "T": {Q0: 1_767_225_600_000, Q1: 1_767_225_600_000},
        "U": {BrokerQueue("a", 0): 1_767_225_600_000 - 9 * 3_600_000},
    }
    for wrong in ("1.5", '"yesterday"', '"1969-12-31T00:00Z"', "true", '"2026-13-01"', "[]"):
        with pytest.raises(OffsetError, match=r"milliseconds since 1970.* ISO time") as caught:
            parse_times_json("startingOffsetsByTimestamp", f'{{"T":{{"0":{wrong}}}}}')
        assert "for queue 0 of topic 'T'" in str(caught.value)


def test_s5_kept_positions_are_in_the_offset_and_in_their_order() -> None:
    start = first_offset({"T": {Q0: 3, Q1: 15}}, "g")
    kept: Positions = {"Z": {Q0: 1}, "T": {Q1: 15}, "A": {AT_A: 4}}
    end = json.loads(json.dumps(next_offset({"T": {Q0: 4}}, start, "g", {}, kept=kept)))
    assert end["kept"] == {"Z@g": {"0": 1}, "T@g": {"1": 15}, "A@g": {"broker-a": {"0": 4}}}
    assert end["v"] == 2
    assert (positions_of(end), kept_of(end)) == ({"T": {Q0: 4}}, kept)
    assert list(kept_of(end)) == list(kept)
    assert "kept" not in next_offset({"T": {Q0: 4}}, end, "g")

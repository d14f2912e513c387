"""Option names of other connectors: each is refused, and the error has the name used here."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.foreign_names import (
    SINK_FOREIGN_COLUMNS,
    SINK_FOREIGN_NAMES,
    SOURCE_FOREIGN_COLUMNS,
    SOURCE_FOREIGN_NAMES,
    column_hint,
)
from pyspark_rocketpy.options.sink_specs import SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import SOURCE_OPTIONS
from pyspark_rocketpy.options.values import (
    SinkOptions,
    SourceOptions,
)
from pyspark_rocketpy.sink.columns import ACCEPTED
from rocketpy_proto.record import COLUMN_TYPES

LEAST = {"endpoints": "h:1", "topic": "T"}


def refusal(kind: type[SourceOptions | SinkOptions], name: str) -> str:
    """Returns the error text of an option."""
    with pytest.raises(OptionError) as caught:
        kind.parse({**LEAST, name: "x"})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("subscribe", "use topic, or topics"),
        ("subscribePattern", "use topicPattern"),
        ("kafka.bootstrap.servers", "use endpoints"),
        ("bootstrap.servers", "use endpoints"),
        ("group.id", "use consumerGroup"),
        ("kafka.group.id", "use consumerGroup"),
        ("kafka.security.protocol", "leave it out; it is an option of Kafka"),
        ("includeHeaders", "column properties always has them"),
        ("namesrvAddr", "use nameServer for a cluster"),
        ("group", "use consumerGroup"),
        ("subExpression", "use filter"),
        ("tag", "use filter"),
        ("sql", "use filter with filterType SQL92"),
        ("expressionType", "use filterType"),
        ("consumerOffset", "use startingOffsets"),
        ("maxOffsetsPerTriger", "did you mean maxOffsetsPerTrigger?"),
        ("watermark", "known: endpoints, nameServer, "),
    ],
)
def test_an_option_of_another_source_is_named_with_ours(name: str, way_out: str) -> None:
    text = refusal(SourceOptions, name)
    assert f"unknown option {name.lower()}; " in text
    assert way_out in text


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("kafka.bootstrap.servers", "use endpoints"),
        ("topics", "use topic, or add column topic to the rows"),
        ("producerGroup", "a sink has no group"),
        ("tags", "give the rows a column tags"),
        ("deliveri", "did you mean delivery?"),
        ("commitTimout", "did you mean commitTimeout?"),
    ],
)
def test_an_option_of_another_sink_is_named_with_ours(name: str, way_out: str) -> None:
    assert way_out in refusal(SinkOptions, name)


def test_no_habit_is_one_of_our_own_names() -> None:
    sources = {spec.name.lower() for spec in SOURCE_OPTIONS}
    sinks = {spec.name.lower() for spec in SINK_OPTIONS}
    assert not SOURCE_FOREIGN_NAMES.keys() & sources
    assert not SINK_FOREIGN_NAMES.keys() & sinks
    for name in {*SOURCE_FOREIGN_NAMES, *SINK_FOREIGN_NAMES}:
        assert name == name.lower()


def test_every_column_habit_leads_to_a_column() -> None:
    assert set(SOURCE_FOREIGN_COLUMNS.values()) <= set(COLUMN_TYPES)
    assert set(SINK_FOREIGN_COLUMNS.values()) <= set(ACCEPTED)
    assert not SOURCE_FOREIGN_COLUMNS.keys() & {name.lower() for name in COLUMN_TYPES}


def test_a_column_is_found_by_habit_by_nearness_or_in_the_list() -> None:
    assert column_hint("Value", COLUMN_TYPES, SOURCE_FOREIGN_COLUMNS) == "use body"
    near = column_hint("Body", COLUMN_TYPES, SOURCE_FOREIGN_COLUMNS)
    assert near.startswith("did you mean body? the columns are topic, ")
    assert column_hint("colour", ACCEPTED, SINK_FOREIGN_COLUMNS).startswith(
        "the columns are body, "
    )

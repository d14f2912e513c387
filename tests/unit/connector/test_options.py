"""Options: parsing, and the one table that everything is generated from."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketpy import errors
from pyspark_rocketpy.errors import OptionError, RocketpyError
from pyspark_rocketpy.option_specs import option_table
from pyspark_rocketpy.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    SinkOptions,
    SourceOptions,
)

LEAST = {"endpoints": "h:1", "topic": "T"}


def test_option_names_ignore_case() -> None:
    options = SourceOptions.parse({**LEAST, "MAXOFFSETSPERTRIGGER": "5", "failondataloss": "FALSE"})
    assert options.max_offsets_per_trigger == 5
    assert options.fail_on_data_loss is False


def test_defaults_are_those_of_the_table() -> None:
    options = SourceOptions.parse(LEAST)
    assert options.topics == ("T",)
    assert options.consumer_group == "pyspark-rocketpy"
    assert options.fail_on_data_loss
    assert options.commit_offsets
    assert options.max_offsets_per_trigger is None


def test_several_endpoints_and_topics_keep_their_order() -> None:
    options = SourceOptions.parse({"endpoints": "b:2, a:1", "topics": "Y, X"})
    assert options.endpoints == ("b:2", "a:1")
    assert options.topics == ("Y", "X")


def test_what_spark_adds_to_a_writers_options_is_no_error() -> None:
    SinkOptions.parse({**LEAST, "path": "x", "checkpointLocation": "y", "queryName": "z"})


@pytest.mark.parametrize("specs", [SOURCE_OPTIONS, SINK_OPTIONS])
def test_every_default_is_accepted_by_its_own_option(specs: tuple[object, ...]) -> None:
    for spec in SOURCE_OPTIONS if specs is SOURCE_OPTIONS else SINK_OPTIONS:
        if spec.default is not None:
            spec.parse(spec.default)
        assert f"| `{spec.name}` |" in option_table((spec,))


@pytest.mark.parametrize("text", ["", " ", "a:1,,b:2", "a:1,a:1", ":1", "a", "a:", "a:b", "a:0"])
def test_endpoints_must_be_hosts_with_ports(text: str) -> None:
    with pytest.raises(OptionError, match="option endpoints"):
        SourceOptions.parse({"endpoints": text, "topic": "T"})


def test_every_error_keeps_its_text_when_pickled() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RocketpyError)
    ]
    assert len(kinds) == 11
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what was wrong")))
        assert type(copy) is kind
        assert str(copy) == f"{kind.code}: what was wrong"

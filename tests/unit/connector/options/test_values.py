"""Options: parsing, and the one table from which the rest is generated."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketpy import errors
from pyspark_rocketpy.errors import OptionError, RocketpyError
from pyspark_rocketpy.options.sink_specs import SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import SOURCE_OPTIONS
from pyspark_rocketpy.options.specs import option_table
from pyspark_rocketpy.options.values import (
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


def test_a_sink_waits_long_for_a_commit_and_fails_on_loss_unless_told_otherwise() -> None:
    options = SinkOptions.parse(LEAST)
    assert options.commit_timeout_ms == 600_000
    assert options.fail_on_data_loss
    told = SinkOptions.parse({**LEAST, "COMMITTIMEOUTMS": "100", "failondataloss": "False"})
    assert told.commit_timeout_ms == 100
    assert told.fail_on_data_loss is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commitTimeout", "99ms"),
        ("commitTimeout", "86400001ms"),
        ("sendTimeout", "30000"),
        ("failOnDataLoss", "maybe"),
    ],
)
def test_a_sink_s_value_out_of_bounds_is_named_with_what_is_accepted(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is '{value}'; accepted: "):
        SinkOptions.parse({**LEAST, name: value})


def test_a_table_that_fails_on_no_loss_does_so_for_source_and_sink() -> None:
    both = {**LEAST, "failOnDataLoss": "false", "startingOffsets": "earliest"}
    assert not SourceOptions.parse(both, is_shared=True).fail_on_data_loss
    assert not SinkOptions.parse(both, is_shared=True).fail_on_data_loss


def test_several_endpoints_and_topics_keep_their_order() -> None:
    options = SourceOptions.parse({"endpoints": "b:2, a:1", "topics": "Y, X"})
    assert options.endpoints == ("b:2", "a:1")
    assert options.topics == ("Y", "X")


def test_what_spark_adds_to_a_writers_options_is_no_error() -> None:
    SinkOptions.parse({**LEAST, "path": "x", "checkpointLocation": "y", "queryName": "z"})


def test_create_table_gives_options_among_the_properties_of_the_table() -> None:
    table = {"provider": "rocketpy", "owner": "me", "comment": "hi", "location": "x", "mine": "1"}
    both = {**LEAST, **{f"option.{name}": value for name, value in LEAST.items()}}
    assert SourceOptions.parse({**table, **both}).topics == ("T",)
    mistyped = {"retryTimeMax": "1", "option.retryTimeMax": "1"}
    with pytest.raises(OptionError, match="unknown option retrytimemax; did you mean retryTimes"):
        SourceOptions.parse({**table, **both, **mistyped})
    with pytest.raises(OptionError, match="unknown option mine"):
        SourceOptions.parse({**LEAST, "mine": "1"})


def test_missing_endpoints_are_named_with_the_way_out_for_a_table() -> None:
    for kind in (SourceOptions, SinkOptions):
        with pytest.raises(OptionError, match=r"endpoints is missing; set it .* WITH \(\.\.\.\)"):
            kind.parse({"topic": "T"})


def test_shared_options_are_those_of_source_and_sink() -> None:
    both = {**LEAST, "columns": "body", "startingOffsets": "earliest", "delivery": "at-least-once"}
    assert SourceOptions.parse(both, is_shared=True).columns == ("body",)
    assert SinkOptions.parse(both, is_shared=True).topic == "T"
    with pytest.raises(OptionError, match="option delivery belongs to the sink; set it on write"):
        SourceOptions.parse(both)
    with pytest.raises(OptionError, match="option columns belongs to the source; set it on read"):
        SinkOptions.parse(both)
    assert SinkOptions.parse({**both, "topics": "x,y"}, is_shared=True).topic == "T"
    with pytest.raises(OptionError, match="unknown option colour"):
        SinkOptions.parse({**both, "colour": "x"}, is_shared=True)


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
    assert len(kinds) == 13
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what was wrong")))
        assert type(copy) is kind
        assert str(copy) == f"{kind.code}: what was wrong"


@pytest.mark.parametrize("group", ["team@prod", "a b", "", "ä", "x" * 256])
def test_a_group_that_rocketmq_would_not_take_is_refused(group: str) -> None:
    """Asserts that @ is refused: it would split topic and group wrongly in the checkpoint."""
    with pytest.raises(OptionError, match="consumerGroup"):
        SourceOptions.parse({"endpoints": "h:1", "topic": "T", "consumerGroup": group})


@pytest.mark.parametrize("topic", ["", "a b", "ä", "x" * 128])
def test_a_topic_that_no_broker_takes_is_refused_before_a_task_runs(topic: str) -> None:
    with pytest.raises(OptionError, match=r"option topic is .* up to 127"):
        SinkOptions.parse({**LEAST, "topic": topic})
    assert SinkOptions.parse({**LEAST, "topic": "x" * 127}).topic == "x" * 127


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "a\x01b"])
def test_a_writer_that_no_broker_takes_is_refused_before_a_task_runs(name: str) -> None:
    with pytest.raises(OptionError, match=r"option txnAppId is .* up to 255"):
        SinkOptions.parse({**LEAST, "txnAppId": name, "txnVersion": "1"})
    options = SinkOptions.parse({**LEAST, "txnAppId": "ä" * 255, "txnVersion": "1"})
    assert options.txn_app_id == "ä" * 255


@pytest.mark.parametrize("text", ["tags = 'even'", "a AND b", "(a)", "a in b || c"])
def test_c04_a_filter_of_tags_that_is_an_sql_expression_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option filter is .* set filterType to SQL92"):
        SourceOptions.parse({**LEAST, "filter": text})
    options = SourceOptions.parse({**LEAST, "filter": text, "filterType": "sql92"})
    assert (options.tags, options.expression) == (None, text)


def test_c04_an_expression_keeps_the_line_end_that_its_comment_needs() -> None:
    text = "a = 1 -- note\n"
    options = SourceOptions.parse({**LEAST, "filter": text, "filterType": "SQL92"})
    assert options.expression == text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"filterType": "SQL92"}, "filterType is SQL92, but filter is not set"),
        ({"filterType": "SQL", "filter": "a"}, "option filterType is 'SQL'; accepted: TAG, SQL92"),
        ({"filterType": "SQL92", "filter": " "}, "option filter is ' '"),
        ({"filter": " "}, "option filter is ' '"),
    ],
)
def test_c04_a_filter_and_its_type_go_together(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        SourceOptions.parse({**LEAST, **wrong})

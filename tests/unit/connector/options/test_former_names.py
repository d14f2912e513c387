"""Former option names: accepted with one warning, under the present name's rules."""

from __future__ import annotations

import logging
from runpy import run_path

import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options import foreign_names
from pyspark_rocketpy.options.foreign_names import FORMER_NAMES
from pyspark_rocketpy.options.retry_options import RETRY_OPTIONS
from pyspark_rocketpy.options.sink_specs import SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import SOURCE_OPTIONS
from pyspark_rocketpy.options.values import SinkOptions, SourceOptions

LEAST = {"endpoints": "h:1", "topic": "T"}


def test_every_former_name_leads_to_an_option() -> None:
    names = {spec.name for spec in (*SOURCE_OPTIONS, *SINK_OPTIONS, *RETRY_OPTIONS)}
    assert set(FORMER_NAMES.values()) <= names
    assert not names & FORMER_NAMES.keys()


def test_former_names_have_their_former_units() -> None:
    times = {"connectTimeoutMs": "150", "PULLTIMEOUTMS": " 2000 ", "retryBackoffMs": "7"}
    source = SourceOptions.parse({**LEAST, **times})
    assert (source.connect_timeout_ms, source.pull_timeout_ms) == (150, 2_000)
    assert source.retry_backoff_ms == 7
    sink = SinkOptions.parse({**LEAST, "sendTimeoutMs": "900", "commitTimeoutMs": "800"})
    assert (sink.send_timeout_ms, sink.commit_timeout_ms) == (900, 800)
    cluster = {"nameServer": "h:1", "topic": "T", "consumerGroup": "g", "withRetries": "true"}
    read = SourceOptions.parse({**cluster, "brokerAbsenceTimeout": "3s"})
    assert (read.broker_unavailable_timeout_ms, read.retry_topic) == (3_000, "%RETRY%g")


def test_a_former_name_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    # As in a new process.
    module = run_path(foreign_names.__file__, run_name=foreign_names.__name__)
    with caplog.at_level(logging.WARNING):
        for given in 3 * [{"sendtimeoutms": "900"}] + [{"sendtimeout": "900ms"}]:
            assert module["with_present_names"](given) == {"sendtimeout": "900ms"}
    assert caplog.messages == [
        "option sendTimeoutMs is now sendTimeout; version 1.0 refuses sendTimeoutMs"
    ]


def test_both_names_of_an_option_are_refused() -> None:
    with pytest.raises(OptionError, match="sendTimeoutMs and sendTimeout are both set"):
        SinkOptions.parse({**LEAST, "sendTimeoutMs": "900", "sendtimeout": "1s"})


@pytest.mark.parametrize("value", ["", "1s", "-1", "99", "3600001", "1e3"])
def test_a_bad_value_of_a_former_name_is_refused_by_the_present_one(value: str) -> None:
    with pytest.raises(OptionError, match=r"option sendTimeout is .*accepted: 100ms to 1h"):
        SinkOptions.parse({**LEAST, "sendTimeoutMs": value})

"""Metrics of queries from Spark's events, also from events that no Spark sends."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import uuid

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pyspark_rocketpy.metrics import QueryMetrics
from tests.unit.connector.metrics.events import PROGRESS, Query, told

NOW_MS = 1_767_225_600_000


class Exported:
    """A listener, and the content of its registry."""

    def __init__(self, **limits: int) -> None:
        self.registry = CollectorRegistry()
        self.now_ms = NOW_MS
        self.listener = QueryMetrics(self.registry, now_ms=lambda: self.now_ms, **limits)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"rocketpy_{name}", labels)

    def labels(self, label: str, name: str = "") -> set[str]:
        """Returns all values of a label, of the series with this prefix."""
        text = generate_latest(self.registry).decode()
        return {
            sample.labels[label]
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if label in sample.labels and sample.name.startswith(f"rocketpy_{name}")
        }


@pytest.fixture
def exported() -> Exported:
    return Exported()


def test_a_batch_shows_in_every_series(exported: Exported) -> None:
    query = Query()
    exported.listener.onQueryStarted(query.started())
    assert exported.value("query_input_rows_total", query="orders") == 0
    exported.now_ms += 5000
    exported.listener.onQueryProgress(query.progress())
    assert exported.value("query_lag_messages", query="orders", topic="T") == 20
    assert exported.value("query_input_rows_total", query="orders") == 40
    assert exported.value("query_last_batch_id", query="orders") == 3
    assert exported.value("query_input_rows_per_second", query="orders") == 8.4
    assert exported.value("query_processed_rows_per_second", query="orders") == 42.2
    assert exported.value("query_batch_duration_seconds_sum", query="orders") == 0.948
    assert exported.value("query_batch_duration_seconds_bucket", query="orders", le="0.5") == 0
    assert exported.value("query_batch_duration_seconds_bucket", query="orders", le="1.0") == 1
    last = exported.value("query_last_progress_timestamp_seconds", query="orders")
    assert last == NOW_MS / 1000 + 5
    assert exported.value("queries_active") == 1


def test_batches_add_up_and_an_idle_query_is_alive(exported: Exported) -> None:
    query = Query()
    for batch_id in range(3):
        exported.listener.onQueryProgress(query.progress(batchId=batch_id, lag={"T": {"0": 7}}))
    assert exported.value("query_input_rows_total", query="orders") == 120
    assert exported.value("query_batch_duration_seconds_count", query="orders") == 3
    assert exported.value("query_lag_messages", query="orders", topic="T") == 7
    exported.now_ms += 60_000
    exported.listener.onQueryIdle(query.idle())
    last = exported.value("query_last_progress_timestamp_seconds", query="orders")
    assert last == NOW_MS / 1000 + 60
    exported.listener.onQueryIdle(Query("unknown").idle())
    assert exported.labels("query") == {"orders"}


def test_a_query_that_ends_takes_its_series_along(exported: Exported) -> None:
    query, other = Query(), Query(None)
    for each in (query, other):
        exported.listener.onQueryStarted(each.started())
        exported.listener.onQueryProgress(each.progress())
    assert exported.labels("query") == {"orders", str(other.id)}
    exported.listener.onQueryTerminated(query.ended())
    assert exported.labels("query") == {str(other.id)}
    assert exported.value("queries_active") == 1
    exported.listener.onQueryTerminated(other.ended())
    assert exported.labels("query") == exported.labels("topic") == set()
    assert exported.labels("error") == set(), "no error, no failure"
    exported.listener.onQueryTerminated(other.ended())
    assert exported.value("queries_active") == 0


@pytest.mark.parametrize(
    ("exception", "error_class", "error"),
    [
        (
            "PySparkException: ROCKETPY_DATA_LOSS: queue 0 …\n\tat java",
            "STREAM",
            "ROCKETPY_DATA_LOSS",
        ),
        ("org.apache.spark.SparkRuntimeException: bad", "USER_RAISED", "USER_RAISED"),
        ("java.lang.OutOfMemoryError", None, "other"),
        ("", None, "other"),
    ],
)
def test_a_failure_is_counted_by_its_error_and_stays(
    exported: Exported, exception: str, error_class: str | None, error: str
) -> None:
    for _ in range(2):
        query = Query()
        exported.listener.onQueryStarted(query.started())
        exported.listener.onQueryTerminated(query.ended(exception, error_class))
    assert exported.value("query_failures_total", query="orders", error=error) == 2
    assert exported.labels("query", "query_input") == set()


def test_a_query_that_is_started_again_before_its_end_is_told_keeps_its_series(
    exported: Exported,
) -> None:
    """Sends the end after the new start: Spark reports a start at once, and an end later."""
    first = Query()
    again = Query(query_id=first.id)
    exported.listener.onQueryProgress(first.progress())
    exported.listener.onQueryStarted(again.started())
    exported.listener.onQueryTerminated(first.ended())
    exported.listener.onQueryProgress(again.progress())
    assert exported.value("query_input_rows_total", query="orders") == 80
    exported.listener.onQueryTerminated(again.ended())
    assert exported.labels("query") == set()


def test_a_second_query_of_the_same_name_goes_by_its_id(exported: Exported) -> None:
    """Uses queries of two sessions: within one, Spark refuses the second name."""
    first, second = Query(), Query()
    for each in (first, second):
        exported.listener.onQueryProgress(each.progress())
    assert exported.labels("query") == {"orders", str(second.id)}
    exported.listener.onQueryTerminated(first.ended())
    exported.listener.onQueryProgress(second.progress())
    assert exported.value("query_input_rows_total", query=str(second.id)) == 80


def test_queries_beyond_the_limit_are_counted_and_move_up() -> None:
    exported = Exported(queries_max=2)
    queries = [Query(f"q{number}") for number in range(4)]
    for query in queries:
        exported.listener.onQueryStarted(query.started())
        exported.listener.onQueryProgress(query.progress())
    assert exported.labels("query") == {"q0", "q1"}
    assert (exported.value("queries_active"), exported.value("queries_left_out")) == (4, 2)
    exported.listener.onQueryTerminated(queries[0].ended())
    exported.listener.onQueryProgress(queries[2].progress())
    assert exported.labels("query") == {"q1", "q2"}
    assert (exported.value("queries_active"), exported.value("queries_left_out")) == (3, 1)
    exported.listener.onQueryTerminated(queries[3].ended("bad", "BAD"))
    assert exported.value("query_failures_total", query="q3", error="BAD") == 1
    assert (exported.value("queries_active"), exported.value("queries_left_out")) == (2, 0)


def test_failures_of_ever_new_queries_make_no_more_series_than_the_limit() -> None:
    exported = Exported(queries_max=3)
    for number in range(10):
        exported.listener.onQueryTerminated(Query().ended("bad", f"ERROR_{number}"))
    assert len(exported.labels("query", "query_failures")) == 4
    assert exported.value("query_failures_total", query="(others)", error="other") == 7


def test_ten_thousand_topics_show_those_furthest_behind_and_the_rest_as_one() -> None:
    exported = Exported(topics_max=10)
    lag = {f"T{number}": {"0": number} for number in range(10_000)}
    query = Query()
    exported.listener.onQueryProgress(query.progress(lag=lag))
    shown = exported.labels("topic")
    assert shown == {"(others)", *(f"T{number}" for number in range(9_990, 10_000))}
    values = [exported.value("query_lag_messages", query="orders", topic=each) for each in shown]
    assert sum(value or 0 for value in values) == sum(range(10_000))
    exported.listener.onQueryProgress(query.progress(lag={"T5": {"0": 1}}))
    assert exported.labels("topic") == {"T5"}, "topics that are gone, and others, go"


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        ({"T": {"broker-a": {"0": 3, "1": 4}, "broker-b": {"0": 5}}}, 12),
        ({"T": {"0": -3, "1": 4}}, 4),
        ({"T": {}}, 0),
    ],
)
def test_lag_adds_up_over_queues_and_brokers(
    exported: Exported, lag: object, expected: int
) -> None:
    exported.listener.onQueryProgress(Query().progress(lag=lag))
    assert exported.value("query_lag_messages", query="orders", topic="T") == expected


def test_two_sources_of_one_topic_are_both_behind_and_other_formats_tell_none(
    exported: Exported,
) -> None:
    ours = PROGRESS["sources"][0]
    others = {"latestOffset": {"T": {"0": 99}}}
    told_none = {"latestOffset": None}
    query = Query()
    exported.listener.onQueryProgress(query.progress(sources=[ours, others, ours]))
    assert exported.value("query_lag_messages", query="orders", topic="T") == 40
    exported.listener.onQueryProgress(query.progress(sources=[told_none]))
    assert exported.value("query_lag_messages", query="orders", topic="T") == 40, "the last known"
    rate = Query("rate")
    exported.listener.onQueryProgress(rate.progress(sources=[others, {"latestOffset": 7}]))
    assert exported.value("query_input_rows_total", query="rate") == 40
    assert exported.labels("topic") == {"T"}


def test_what_spark_could_not_measure_is_left_out(exported: Exported) -> None:
    query = Query()
    event = query.progress(
        batchDuration=None, inputRowsPerSecond=None, processedRowsPerSecond=float("inf")
    )
    exported.listener.onQueryProgress(event)
    assert exported.value("query_input_rows_total", query="orders") == 40
    assert exported.value("query_batch_duration_seconds_count", query="orders") == 0
    assert exported.value("query_processed_rows_per_second", query="orders") is None
    exported.listener.onQueryTerminated(query.ended())
    assert exported.labels("query") == set()


BROKEN: list[dict[str, object]] = [
    {"id": ""},
    {"id": 7},
    {"runId": []},
    {"batchId": "3"},
    {"batchId": True},
    {"numInputRows": -1},
    {"numInputRows": 10**400},
    {"numInputRows": 1.5},
    {"batchDuration": "long"},
    {"batchDuration": 10**400},
    {"processedRowsPerSecond": {}},
    {"sources": {"0": 1}},
    {"sources": "none"},
    {"lag": []},
    {"lag": {"T": 7}},
    {"lag": {"T": {"zero": 7}}},
    {"lag": {"T": {"0": "7"}}},
    {"lag": {"T": {"0": 1.5}}},
    {"lag": {"T": {"0": 10**30}}},
    {"lag": {"T": {"": {"0": 7}}}},
    {"lag": {"T": {"broker-a": {"0": {"deeper": 1}}}}},
]
HOSTILE = [
    "",
    "no JSON",
    "[]",
    "null",
    "7",
    "{}",
    "[" * 100_000,
    "9" * 5_000,
    *(Query().progress(**changes).progress.json for changes in BROKEN),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_progress_that_cannot_be_read_is_counted_and_changes_nothing(
    exported: Exported, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    exported.listener.onQueryProgress(Query("good").progress())
    before = generate_latest(exported.registry).decode().replace("refused_total 0.0", "")
    with caplog.at_level(logging.WARNING):
        exported.listener.onQueryProgress(told(text))
    assert exported.value("progress_refused_total") == 1
    after = generate_latest(exported.registry).decode().replace("refused_total 1.0", "")
    assert before == after
    (record,) = caplog.records
    assert len(record.getMessage()) < 400
    assert len(record.getMessage().splitlines()) == 1


def test_names_that_no_scrape_could_encode_are_mended(exported: Exported) -> None:
    query = Query("half \ud800\n\"'")
    exported.listener.onQueryStarted(query.started())
    exported.listener.onQueryProgress(query.progress(lag={"T\udfff": {"0": 1}}))
    assert exported.labels("query") == {"half ?\n\"'"}
    assert exported.labels("topic") == {"T?"}
    exported.listener.onQueryTerminated(query.ended("bad", "E\ud800"))
    assert exported.labels("error") == {"E?"}


def test_scrapes_beside_events_are_whole(exported: Exported) -> None:
    done = threading.Event()
    faults: list[BaseException] = []

    def scrape() -> None:
        try:
            while not done.is_set():
                generate_latest(exported.registry)
        except BaseException as error:
            faults.append(error)
            raise

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for number in range(200):
        query = Query(f"q{number}")
        exported.listener.onQueryProgress(query.progress(lag={f"T{n}": {"0": n} for n in range(9)}))
        exported.listener.onQueryTerminated(query.ended())
    done.set()
    scraper.join()
    assert faults == []
    assert exported.labels("query") == set()


def test_a_registry_takes_one_until_it_is_closed() -> None:
    registry = CollectorRegistry()
    first = QueryMetrics(registry)
    with pytest.raises(
        ValueError, match=r"Duplicated .*; .* use that one, or call its close\(\) first"
    ):
        QueryMetrics(registry)
    first.close()
    first.close()
    assert list(registry.collect()) == []
    QueryMetrics(registry)


def test_a_registry_with_one_of_the_names_is_left_as_it_was() -> None:
    registry = CollectorRegistry()
    Gauge("rocketpy_queries_active", "Somebody else's", registry=registry)
    with pytest.raises(ValueError, match="rocketpy_queries_active"):
        QueryMetrics(registry)
    assert [family.name for family in registry.collect()] == ["rocketpy_queries_active"]


@pytest.mark.parametrize("limits", [{"queries_max": 0}, {"topics_max": 0}, {"topics_max": -1}])
def test_a_limit_below_one_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="set each to 1 or more"):
        QueryMetrics(CollectorRegistry(), **limits)  # type: ignore[arg-type]


def test_the_connector_does_not_import_prometheus_client_and_says_when_it_is_missing() -> None:
    program = (
        "import sys, pyspark_rocketpy\n"
        "print('prometheus_client' in sys.modules)\n"
        "sys.modules['prometheus_client'] = None\n"
        "import pyspark_rocketpy.metrics\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: prometheus-client is missing; "
        "install it with: pip install 'pyspark-rocketpy[metrics]'"
    )


def test_ids_are_labels_as_spark_writes_them(exported: Exported) -> None:
    query = Query(None, uuid.UUID("6af60b7f-9413-4e8e-9479-745c67c6c782"))
    exported.listener.onQueryProgress(told(json.dumps(json.loads(query.progress().progress.json))))
    assert exported.labels("query") == {"6af60b7f-9413-4e8e-9479-745c67c6c782"}

"""Metrics in documents and Grafana's board, against the metrics of a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import promql_parser
import pytest
import yaml

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_proto.rocketpy.v1 import retry_pb2, retry_pb2_grpc
from tests.broker.metrics.scrape import Scraped, scrape
from tests.broker.metrics.test_messages import commit, enter, update_group
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, ROLLBACK, end, prepare
from tests.support.docker.dockerfile import TOP

DOCUMENT = TOP / "docs" / "metrics.md"
BOARD = TOP / "docker" / "grafana" / "dashboards" / "broker.json"
ROW = re.compile(r"^\| `(rocket[a-z_]+)` \| (\w+) \|([a-z_, ]*)\|", re.MULTILINE)
# Labels that Prometheus itself adds to what it reads.
ADDED = {"job", "instance"}
NODE = {"cluster", "node_id", "node_type"}


async def use_everything(running: RunningBroker) -> None:
    """Uses a feature of each kind, so that each metric has a series."""
    await running.create_topic("T")
    await enter(running, "g")
    await running.append("T", 0, b"1", b"2")
    await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
    await commit(running, "g", 1)
    await running.append_block("T", 0, wire_block("T", [b"3"], properties={"DELAY": ["1"]}))
    await end(running, await prepare(running, "kept"), COMMIT)
    await end(running, await prepare(running, "dropped"), ROLLBACK)
    message = retry_pb2.MessageToSendBack(commit_log_offset=0, delay_level=-1)
    request = retry_pb2.SendBackRequest(consumer_group="g", messages=[message])
    assert (await retry_pb2_grpc.RetryStub(running.channel).SendBack(request)).status.code == 0
    running.clock.advance(1_000)
    assert await update_group(running, "g") == 0
    counter = running.broker.services.statistics.counter
    await until(lambda: bool(counter.delay_seconds.series))


@pytest.fixture
async def scraped(start_broker: StartBroker) -> AsyncIterator[Scraped]:
    async with start_broker(http_port=0, replication=Replication(port=0)) as running:
        await use_everything(running)
        yield await scrape(running)


def labels_of(scraped: Scraped, sample: str) -> set[str]:
    return {name for series in scraped.samples[sample] for name, _ in series}


async def test_s13_the_document_has_every_metric_with_its_type_and_labels(
    scraped: Scraped, start_broker: StartBroker
) -> None:
    role = Replication(BrokerRole.SLAVE, 1, "127.0.0.1:1")
    async with start_broker(http_port=0, folder="slave", replication=role) as slave:
        samples = {**(await scrape(slave)).samples, **scraped.samples}
    scraped = replace(scraped, samples=samples)
    told = {
        name: (kind, {label for label in labels.strip().split(", ") if label})
        for name, kind, labels in ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    }
    suffix = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    found = {
        name: (kind, labels_of(scraped, name + suffix[kind]) - {"le"})
        for name, kind in scraped.types.items()
        if name.startswith("rocket")
    }
    assert told == found


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """Yields each selector of a query: its metric, and the labels that it filters and groups by."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or "", {matcher.name for matcher in node.matchers.matchers}
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from selectors(node.vector_selector)
    elif isinstance(node, promql_parser.AggregateExpr):
        grouped = set(node.modifier.labels) if node.modifier is not None else set()
        for name, labels in selectors(node.expr):
            yield name, labels | grouped
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif isinstance(node, promql_parser.Call):
        for each in node.args:
            yield from selectors(each)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from selectors(node.expr)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), node


def board_queries() -> list[str]:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m").replace("$node", ".*") for query in queries]


def alert_queries() -> list[str]:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Alerts")[2]
    return re.findall(r"\| `([^`]+)` \|$", section, re.MULTILINE)


async def test_s13_each_query_of_board_and_alerts_names_what_is_there(scraped: Scraped) -> None:
    queries = board_queries() + alert_queries()
    assert len(alert_queries()) > 5
    assert len(queries) > 30
    for query in queries:
        named = list(selectors(promql_parser.parse(query)))
        assert named, query
        for name, labels in named:
            if name == "up":
                continue
            assert name in scraped.samples, f"{name} in {query}"
            known = labels_of(scraped, name) | NODE | ADDED
            assert labels <= known, f"{labels - known} of {name} in {query}"


def test_the_board_asks_for_the_job_that_prometheus_has() -> None:
    path = TOP / "docker" / "prometheus" / "prometheus.yml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    (job,) = content["scrape_configs"]
    assert job["job_name"] == "rocketpy"
    assert job["static_configs"] == [{"targets": ["broker:5557"]}]
    named = re.findall(r'job="(\w+)"', BOARD.read_text("utf-8") + DOCUMENT.read_text("utf-8"))
    assert set(re.findall(r'job=\\?"(\w+)', BOARD.read_text("utf-8"))) | set(named) == {"rocketpy"}


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own

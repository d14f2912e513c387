"""Grafana's board against Prometheus itself, with a broker that it scrapes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml

from rocketpy_broker import LocalBroker, LocalBrokerError
from tests.broker.metrics.test_described import alert_queries, board_queries
from tests.interop.cluster.servers import free_port
from tests.interop.console.sample import BILLING, fill
from tests.interop.remoting.clients import until
from tests.support.docker.dockerfile import TOP
from tests.support.time_limits import WAIT_SECONDS_MAX

CONFIG = TOP / "docker/prometheus/prometheus.yml"
_opener = build_opener(ProxyHandler({}))


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Yields the address of a Prometheus with the compose file's settings, but for the target."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    config["global"]["scrape_interval"] = "1s"
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [target]}]
    path, address = folder / "prometheus.yml", f"127.0.0.1:{free_port((0,))}"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    program = shutil.which("prometheus")
    assert program is not None, "run `make interop`, which installs Prometheus"
    options = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (
        (folder / "log").open("w", encoding="utf-8") as log,
        subprocess.Popen([program, f"--config.file={path}", *options], stderr=log) as process,
    ):
        try:
            yield address
        finally:
            process.kill()


def ask(address: str, query: str) -> list[Any]:
    """Returns the series of a query now; none while Prometheus starts."""
    url = f"http://{address}/api/v1/query?{urlencode({'query': query})}"
    try:
        with _opener.open(url, timeout=WAIT_SECONDS_MAX) as answer:
            found = json.load(answer)
    except HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return []
    except OSError:
        return []
    series: list[Any] = found["data"]["result"]
    return series


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of a Prometheus that has read the metrics of a busy broker twice."""
    with LocalBroker(http_port=0) as broker:
        fill(broker)
        with prometheus(tmp_path_factory.mktemp("prometheus"), broker.http_endpoint) as address:
            before = ask_until(address, "count_over_time(up[1h]) >= 2")
            assert before
            fill_more(broker)
            ask_until(address, f"{before[0]['value'][1]} + 3 <= count_over_time(up[1h])")
            yield address


def fill_more(broker: LocalBroker) -> None:
    """Lets each counter grow: messages, reads, a delayed message, transactions, dead letters."""
    for end in (broker.commit, broker.rollback):
        end(broker.send_transaction("payments", "one more", "shop"))
    broker.send("orders", ["more"] * 10)
    broker.send("orders", "soon", delay_level=1)
    for message in broker.pull("orders", BILLING, 1):
        broker.send_back(message, BILLING, delay_level=-1)
    with suppress(LocalBrokerError):
        broker.send("missing", "a call that fails")


def ask_until(address: str, query: str) -> list[Any]:
    """Asks until there is a result."""
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = ask(address, query)
        return found != []

    until(is_there, lambda: query)
    return found


def test_each_query_of_the_board_has_a_result(scraped: str) -> None:
    assert board_queries()

    def empty() -> list[str]:
        return [query for query in board_queries() if not ask(scraped, query)]

    # On a busy machine a message of a second's delay comes later.
    until(lambda: empty() == [], empty)


def test_alerts_are_raised_for_what_has_happened(scraped: str) -> None:
    calm = ("up{", "rocketpy_store_writable", "rocketpy_corrupt_records")

    def raised(*names: str) -> list[str]:
        asked = [each for each in alert_queries() if any(name in each for name in names)]
        return [query for query in asked if ask(scraped, query)]

    until(lambda: raised("send_to_dlq") != [])
    # A scrape may take too long once: it counts as a broker that is not up.
    until(lambda: raised(*calm) == [], lambda: raised(*calm))

"""The pytest plugin, in a project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import TOP, blocks_of
from tests.support.time_limits import WAIT_SECONDS_MAX

TESTS = """
import pytest

NAMES = []

@pytest.mark.parametrize("number", range(3))
def test_each_test_has_a_topic_of_its_own(rocketpy_broker, rocketpy_topic, number):
    assert rocketpy_broker.messages(rocketpy_topic) == []
    rocketpy_broker.send(rocketpy_topic, str(number))
    assert [message.text for message in rocketpy_broker.messages(rocketpy_topic)] == [str(number)]
    assert rocketpy_broker.topics() == [rocketpy_topic]
    NAMES.append(rocketpy_topic)
    if number == 1:
        rocketpy_broker.delete_topic(rocketpy_topic)

def test_addresses_are_the_brokers(rocketpy_endpoint, rocketpy_name_server, rocketpy_broker):
    assert rocketpy_endpoint == rocketpy_broker.endpoint
    assert rocketpy_name_server == rocketpy_broker.name_server
    rocketpy_broker.create_topic("left")

def test_topics_are_gone_afterwards(rocketpy_broker):
    assert len(set(NAMES)) == 3
    assert rocketpy_broker.topics() == []
"""


def test_the_fixtures_work_in_any_project(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False
    )
    assert "5 passed" in done.stdout, done.stdout


SHARED = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_workers_share_the_broker(broker, number):
    broker.create_topic("shared", exist_ok=True)
    broker.send("shared", broker.endpoint)
    assert {each.text for each in broker.messages("shared")} == {broker.endpoint}
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_workers_share_a_broker_by_the_recipe(tmp_path: Path, workers: str) -> None:
    page = TOP / "docs" / "broker.md"
    recipe = next(
        block.text
        for block in blocks_of(page, page.read_text(encoding="utf-8"))
        if "pytest_configure_node" in block.text
    )
    (tmp_path / "conftest.py").write_text(recipe, encoding="utf-8")
    (tmp_path / "test_project.py").write_text(SHARED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr

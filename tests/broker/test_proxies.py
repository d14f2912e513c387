"""Command and LocalBroker where the environment names a proxy, as on a company's machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from tests.support.broker.shell import ROCKETPY
from tests.support.proxies import USER, RecordingProxy, environment_with, recording_proxy

EMBEDDED = """
from rocketpy_broker import LocalBroker
with LocalBroker() as broker:
    broker.create_topic("T", queues=1)
    for text in "ab":
        broker.send("T", text)
    print([message.text for message in broker.messages("T")])
"""


@pytest.fixture
def proxy() -> Iterator[RecordingProxy]:
    with recording_proxy() as running:
        yield running


def run(proxy: RecordingProxy, *command: str) -> subprocess.CompletedProcess[str]:
    environment = environment_with(proxy.url)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["health"], ["topic", "list"], ["stats"]])
def test_a_command_reaches_a_broker_of_this_machine(
    rocketpy_broker: LocalBroker, proxy: RecordingProxy, words: list[str]
) -> None:
    ended = run(proxy, *ROCKETPY, *words, "--endpoint", rocketpy_broker.endpoint)
    assert (ended.returncode, ended.stderr, proxy.asked) == (0, "", [])


def test_a_local_broker_serves_its_program(proxy: RecordingProxy) -> None:
    ended = run(proxy, sys.executable, "-c", EMBEDDED)
    assert (ended.stdout, ended.stderr, proxy.asked) == ("['a', 'b']\n", "", [])


@pytest.mark.parametrize("words", [["health"], ["topic", "list"]])
def test_another_host_is_reached_through_the_proxy_which_errors_name(
    proxy: RecordingProxy, words: list[str]
) -> None:
    ended = run(proxy, *ROCKETPY, *words, "--endpoint", "broker.corp:8081")
    assert ended.returncode == 1
    assert f"broker.corp:8081 through proxy {proxy.address} of environment" in ended.stderr
    assert "variable grpc_proxy" in ended.stderr
    assert USER.partition(":")[2] not in ended.stderr
    assert set(proxy.asked) == {"CONNECT broker.corp:8081 HTTP/1.1"}

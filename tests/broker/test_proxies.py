"""Command and LocalBroker where the environment names a proxy, as on a company's machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from tests.support.broker.shell import ended
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


@pytest.mark.parametrize("words", [["health"], ["topic", "list"], ["stats"]])
def test_a_command_reaches_a_broker_of_this_machine(
    rocketpy_broker: LocalBroker, proxy: RecordingProxy, words: list[str]
) -> None:
    environment = environment_with(proxy.url)
    done = ended(*words, "--endpoint", rocketpy_broker.endpoint, env=environment)
    assert (done.returncode, done.stderr, proxy.asked) == (0, "", [])


def test_a_local_broker_serves_its_program(proxy: RecordingProxy) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDED],
        env=environment_with(proxy.url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, proxy.asked) == ("['a', 'b']\n", "", [])


@pytest.mark.parametrize("words", [["health"], ["topic", "list"]])
def test_another_host_is_reached_through_the_proxy_which_errors_name(
    proxy: RecordingProxy, words: list[str]
) -> None:
    done = ended(*words, "--endpoint", "broker.corp:8081", env=environment_with(proxy.url))
    assert done.returncode == 1
    assert f"broker.corp:8081 through proxy {proxy.address} of environment" in done.stderr
    assert "variable grpc_proxy" in done.stderr
    assert USER.partition(":")[2] not in done.stderr
    assert set(proxy.asked) == {"CONNECT broker.corp:8081 HTTP/1.1"}

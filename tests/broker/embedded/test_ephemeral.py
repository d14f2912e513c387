"""`rocketpy broker --ephemeral`: a broker for programs in any language."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import rocketpy_broker
from tests.support.broker import shell
from tests.support.broker.shell import ROCKETPY, environment
from tests.support.time_limits import WAIT_SECONDS_MAX

EPHEMERAL = [sys.executable, "-m", "rocketpy_broker", "--ephemeral"]
ADDRESSES = ("endpoint", "nameServer", "remotingEndpoint", "httpEndpoint")


def started(command: list[str], stdin: int) -> subprocess.Popen[str]:
    """Starts a program whose output is piped."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, text=True, env=environment())


def addresses(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits for the broker's line of JSON, and returns it."""
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def assert_gone(told: dict[str, Any]) -> None:
    """Asserts that the store is removed and no port listens."""
    assert not Path(told["data"]).exists()
    for name in ADDRESSES:
        host, _, port = told[name].rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.parametrize("command", [EPHEMERAL, [*ROCKETPY, "broker", "--ephemeral"]])
def test_a_program_gets_the_addresses_and_ends_the_broker_by_its_pipe(command: list[str]) -> None:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        told = addresses(process)
        assert told.keys() == {*ADDRESSES, "consoleUrl", "data", "pid"}
        assert told["consoleUrl"] == f"http://{told['httpEndpoint']}/"
        assert told["pid"] == process.pid
        assert len({told[name] for name in ADDRESSES}) == len(ADDRESSES)
        for name in ADDRESSES:
            host, _, port = told[name].rpartition(":")
            socket.create_connection((host, int(port))).close()
        with rocketpy_broker.connect(told["endpoint"]) as broker:
            broker.create_topic("orders")
            broker.send("orders", "a")
            assert [message.text for message in broker.messages("orders")] == ["a"]
        assert Path(told["data"], "commitlog").is_dir()
        rest = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert (process.returncode, rest) == (0, ("", ""))
    assert_gone(told)


def test_addresses_of_ipv6_have_brackets() -> None:
    with shell.started("--ephemeral", "--host", "::1", stdin=PIPE, stdout=PIPE) as process:
        told = addresses(process)
        assert all(told[name].startswith("[::1]:") for name in ADDRESSES), told
        with rocketpy_broker.connect(told["endpoint"]) as broker:
            assert broker.topics() == []
        process.communicate(timeout=WAIT_SECONDS_MAX)


def test_a_broker_ends_with_its_parent_where_no_pipe_tells() -> None:
    """Kills a shell that waits in `cat`, which closes nothing of the broker."""
    script = '"$@" < /dev/null & cat'
    with started(["sh", "-c", script, "sh", *EPHEMERAL], subprocess.PIPE) as shell:
        told = addresses(shell)
        shell.send_signal(signal.SIGKILL)
        shell.wait(WAIT_SECONDS_MAX)
        # The broker has this pipe, too: it is at its end when the broker has ended.
        assert shell.communicate(timeout=WAIT_SECONDS_MAX)[0] == ""
    assert_gone(told)


# A child whose parent ends after the child's first imports, and before its broker starts.
ORPHAN = """
import os, sys, time
from rocketpy_broker.cli.main import main
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.001)
sys.argv = ["rocketpy", "broker", "--ephemeral"]
main()
"""


def test_a_broker_ends_whose_parent_ended_during_the_start() -> None:
    with started([sys.executable, "-c", ORPHAN], subprocess.DEVNULL) as process:
        # The pipe is at its end when the broker has ended.
        told = json.loads(process.communicate(timeout=WAIT_SECONDS_MAX)[0])
    assert_gone(told)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_broker_with_its_store(number: signal.Signals) -> None:
    with shell.started("--ephemeral", stdin=subprocess.DEVNULL, stdout=PIPE) as process:
        told = addresses(process)
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS_MAX) == 0
    assert_gone(told)


def test_a_signal_during_the_start_leaves_no_store(tmp_path: Path) -> None:
    env = {**environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        EPHEMERAL, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env
    ) as process:
        while not [*tmp_path.glob("rocketpy-*")]:
            assert process.poll() is None
        process.terminate()
        process.wait(WAIT_SECONDS_MAX)
    assert [*tmp_path.iterdir()] == []


def test_a_line_that_a_full_disk_does_not_take_is_logged() -> None:
    module = "rocketpy_broker.runtime.standard_output"
    program = f"from {module} import print_line; print_line('a'); print_line('b')"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    assert done.stderr == "cannot print the line 'a': No space left on device\n"


def test_tls_has_an_address_of_its_own() -> None:
    words = ["--ephemeral", "--tls-self-signed", "--remoting-port", "0"]
    with shell.started(*words, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert "remotingEndpoint" not in told
        with rocketpy_broker.connect(
            told["tlsEndpoint"], tls=True, tls_ca_file=told["tlsCaFile"]
        ) as broker:
            assert broker.topics() == []
        process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 0


def test_an_ephemeral_broker_keeps_no_directory(tmp_path: Path) -> None:
    done = shell.ended("--ephemeral", "--data", str(tmp_path), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave --data out" in done.stderr
    assert [*tmp_path.iterdir()] == []

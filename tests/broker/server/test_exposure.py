"""A broker that other machines could reach, which is not started by accident."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.server.bind_address import (
    PortInUseError,
    PublicBindError,
    check_host,
    check_name_server_host,
    check_ports,
)
from tests.support.broker.running_broker import StartBroker
from tests.support.broker.shell import ended


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"]
)
def test_b12_loopback_needs_no_consent(host: str) -> None:
    check_host(host, insecure=False)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "[::]",
        "",
        "10.0.0.1",
        "broker.example",
        "unix",
        "127.0.0.1.example",
        "::ffff:0.0.0.0",
    ],
)
def test_b12_another_host_is_refused_unless_insecure_is_said(host: str) -> None:
    with pytest.raises(PublicBindError) as refused:
        check_host(host, insecure=False)
    assert repr(host) in refused.value.remark
    assert "--insecure" in refused.value.remark
    check_host(host, insecure=True)


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


async def test_b12_nothing_is_opened_before_that(start_broker: StartBroker, tmp_path: Path) -> None:
    with pytest.raises(PublicBindError):
        async with start_broker(host="0.0.0.0"):
            pass
    assert is_empty(tmp_path)
    async with start_broker(host="0.0.0.0", insecure=True) as running:
        assert running.ready.host == "0.0.0.0"


def test_a_port_that_is_taken_is_told_in_one_line_before_anything_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ended("broker", "--port", str(port), "--data", str(tmp_path / "store"))
    assert (done.returncode, done.stdout) == (1, "")
    told = f"rocketpy broker: cannot listen on 127.0.0.1:{port} (Address already in use); another"
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "store" / "commitlog").exists()


@pytest.mark.parametrize(
    ("host", "reason"), [("192.0.2.77", "Cannot assign"), ("nowhere.invalid", "not known")]
)
def test_an_address_that_is_not_this_machine_s_is_told(host: str, reason: str) -> None:
    with pytest.raises(PortInUseError, match="an address of this machine with --host") as refused:
        check_ports(BrokerConfig(Path(), host=host, port=8081))
    assert refused.value.remark.startswith(f"cannot listen on {host}:8081 (")
    assert reason in refused.value.remark


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_a_free_port_is_no_fault(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    check_ports(BrokerConfig(Path(), host=host, port=port))
    check_ports(BrokerConfig(Path(), host=host, port=0))


def test_b12_the_command_says_how_to_consent(tmp_path: Path) -> None:
    done = ended("broker", "--port", "0", "--host", "0.0.0.0", "--data", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the broker has no users." in done.stderr
    assert "--insecure" in done.stderr
    assert "Traceback" not in done.stderr


def test_b12_a_name_server_says_what_its_clients_can_do(caplog: pytest.LogCaptureFixture) -> None:
    done = ended("nameserver", "--port", "0", "--host", "0.0.0.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "can change every route. Listen on 127.0.0.1" in done.stderr
    assert "user add" not in done.stderr
    check_name_server_host("0.0.0.0", insecure=True)
    assert "can change every route" in caplog.text


def test_b12_with_insecure_the_command_serves(tmp_path: Path) -> None:
    words = ["broker", "--port", "0", "--host", "0.0.0.0", "--insecure", "--stop-at-eof"]
    done = ended(*words, "--data", str(tmp_path))
    assert done.returncode == 0
    assert "ready on 0.0.0.0:" in done.stdout
    assert "each client that reaches" in done.stderr


def test_users_in_tls_alone_need_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    check_host("0.0.0.0", insecure=False, has_users=True, is_encrypted=True)
    assert not caplog.records
    check_host("0.0.0.0", insecure=False, has_users=True)
    assert "without encryption" in caplog.text

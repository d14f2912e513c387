"""Ports and addresses of `rocketpy broker`: defaults, what is in use, and refusals."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
import typer

from rocketpy_broker.cli.broker.network_options import network_settings
from rocketpy_broker.embedded.process import ReservedPort
from tests.broker.embedded.test_name_server import routed
from tests.support.broker.shell import ended, environment, started
from tests.support.time_limits import WAIT_SECONDS_MAX

READY = re.compile(
    r"rocketpy broker ready on 127\.0\.0\.1:(?P<port>\d+) data=\S+ flush=\w+"
    r"( remoting=127\.0\.0\.1:(?P<remoting>\d+))?"
    r"( name_server=127\.0\.0\.1:(?P<name_server>\d+))?"
    r"( http=127\.0\.0\.1:(?P<http>\d+))?"
    r"( console=(?P<console>http://127\.0\.0\.1:(?P=http)/))?\n"
)
DEFAULTS = (10911, 9876, 5557)
PORTS = ("remoting_port", "name_server_port", "http_port")


@contextmanager
def broker(*options: str, **variables: str) -> Iterator[dict[str, str | None]]:
    """Yields the ports of a running broker's ready line; its log is in `log` at the end."""
    environ = environment(**variables)
    with started("broker", *options, stdout=PIPE, stderr=PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        found = READY.fullmatch(line)
        if found is None:
            process.kill()
            raise AssertionError(line + process.stderr.read())
        ports: dict[str, str | None] = found.groupdict()
        yield ports
        process.send_signal(signal.SIGTERM)
        ports["log"] = process.stderr.read()
        assert process.wait(WAIT_SECONDS_MAX) == 0


def refused(*options: str, **variables: str) -> str:
    """Returns the errors of a broker that does not start, in one line of words."""
    done = ended("broker", "--port", "0", *options, env=environment(**variables))
    assert done.returncode != 0
    assert done.stdout == ""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())


def test_all_servers_take_free_ports_where_the_grpc_port_is_free() -> None:
    with broker("--port", "0") as ports:
        numbers = {ports[name] for name in ("port", "remoting", "name_server", "http")}
        assert len(numbers) == 4
        assert not numbers & {None, "10911", "9876", "5557"}
        assert ports["console"] is not None
        found = routed(f"127.0.0.1:{ports['name_server']}", "TBW102")
        assert found == {"broker-a": {0: f"127.0.0.1:{ports['remoting']}"}}
    assert ports["log"] == ""


def test_brokers_with_fixed_ports_share_a_machine() -> None:
    with ExitStack() as held:
        for number in DEFAULTS:
            try:
                held.enter_context(socket.create_server(("127.0.0.1", number)))
            except OSError:
                # Another program has it already.
                continue
        port = held.enter_context(closing(ReservedPort()))
        with broker("--port", str(port.number)) as ports:
            assert ports["remoting"] not in {None, "10911"}
            assert ports["name_server"] not in {None, "9876"}
            assert ports["http"] not in {None, "5557"}
    log = str(ports["log"])
    assert f"port 10911 is in use, so the broker listens on port {ports['remoting']}" in log
    assert f"port 9876 is in use, so the broker listens on port {ports['name_server']}" in log
    assert f"port 5557 is in use, so the broker listens on port {ports['http']}" in log
    assert "--remoting-port" in log
    assert "--name-server-port" in log
    assert "--http-port" in log
    assert log.count("\n") == 3


def test_the_default_ports_are_those_of_rocketmq() -> None:
    settings = network_settings(8081, None, None, None, "", "", None)
    assert tuple(settings[name] for name in PORTS) == DEFAULTS
    assert settings["preferred_ports"] == {*DEFAULTS}
    settings = network_settings(8081, *DEFAULTS, "", "", None)
    assert tuple(settings[name] for name in PORTS) == DEFAULTS
    assert settings["preferred_ports"] == frozenset()


@pytest.mark.parametrize("option", ["--remoting-port", "--name-server-port", "--http-port"])
def test_a_given_port_that_is_in_use_is_an_error(option: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(option, str(port), "--data", str(tmp_path / "store"))
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in told
    assert f"choose another {option}" in told
    assert not (tmp_path / "store" / "commitlog").exists()


def test_servers_can_be_off() -> None:
    off = ("--remoting-port", "0", "--name-server-port", "0", "--http-port", "0")
    with broker("--port", "0", *off) as ports:
        assert {ports[name] for name in ("remoting", "name_server", "http", "console")} == {None}
    with broker("--port", "0", "--remoting-port", "0") as ports:
        assert ports["remoting"] is None
        assert routed(f"127.0.0.1:{ports['name_server']}", "TBW102") == {}


def test_a_broker_registers_at_the_name_servers_of_its_options_or_environment() -> None:
    with broker("--port", "0", "--remoting-port", "0") as other:
        address = f"127.0.0.1:{other['name_server']}"
        more = ("--broker-name", "b", "--advertise-host", "b.example", "--advertise-port", "1234")
        with broker("--port", "0", "--name-server", f"{address};{address}", *more):
            wait_routed(address, {"b": {0: "b.example:1234"}})
        wait_routed(address, {})
        variables = {
            "ROCKETPY_NAME_SERVER": address,
            "ROCKETPY_ADVERTISE_HOST": "c.example",
            "ROCKETPY_ADVERTISE_PORT": "1235",
        }
        with broker("--port", "0", **variables):
            wait_routed(address, {"broker-a": {0: "c.example:1235"}})


def wait_routed(address: str, expected: dict[str, dict[int, str]]) -> None:
    """Waits until the name server has these brokers."""
    while routed(address, "TBW102") != expected:
        pass


@pytest.mark.parametrize(
    ("name_server", "advertise_host", "option", "reason"),
    [
        ("ns1", "", "--name-server", "'ns1', accepted is host:port"),
        ("ns1:9876;:1", "", "--name-server", "':1', accepted is host:port"),
        ("ns1:0", "", "--name-server", "'ns1:0', accepted is host:port"),
        ("ns1:98765", "", "--name-server", "accepted is host:port"),
        ("http://ns1:9876", "", "--name-server", "accepted is host:port"),
        ("::1:9876", "", "--name-server", "accepted is host:port"),
        ("ns1:9876,ns2:9876", "", "--name-server", "accepted is host:port"),
        (";".join(f"ns{n}:1" for n in range(17)), "", "--name-server", "16 or fewer"),
        ("", "host:10911", "--advertise-host", "without a port"),
        ("", "a b", "--advertise-host", "without a port"),
    ],
)
def test_a_value_that_cannot_work_is_refused(
    name_server: str, advertise_host: str, option: str, reason: str
) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(reason)) as error:
        network_settings(0, None, None, None, name_server, advertise_host, None)
    assert error.value.param_hint == option


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--name-server", "ns:1", "--remoting-port", "0"], "--remoting-port, which is off"),
        (["--advertise-port", "0"], "greater than or equal to 1"),
    ],
)
def test_a_refusal_names_its_option(options: list[str], reason: str) -> None:
    told = refused(*options)
    assert options[0] in told
    assert reason in told


def test_ipv6_addresses_are_taken_with_and_without_brackets() -> None:
    settings = network_settings(0, None, None, None, "[::1]:9876; ns1:1 ;", "[fd00::1]", None)
    assert settings["name_servers"] == ("[::1]:9876", "ns1:1")
    assert settings["advertise_host"] == "fd00::1"

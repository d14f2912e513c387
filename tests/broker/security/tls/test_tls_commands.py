"""Commands, the client and LocalBroker over TLS."""

from __future__ import annotations

import pickle
import re
import signal
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker, LocalBrokerError, LocalTls
from rocketpy_broker.cli.commands import app
from rocketpy_broker.client.brokers import broker_info
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import ClientError, UnreachableError
from rocketpy_proto.tls import TlsConfig
from tests.support.broker.shell import ROCKETPY, environment
from tests.support.broker.tls_files import TlsFiles
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a self-signed certificate and a topic."""
    with LocalBroker(tls=True, http_port=0) as local:
        local.create_topic("orders", queues=2)
        yield local


def tls_of(broker: LocalBroker, server_name: str | None = None) -> TlsConfig:
    return TlsConfig.of(Path(broker.tls_ca_file), None, None, server_name)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words])
    return result.exit_code, result.output


def test_each_kind_of_command_reaches_the_broker_by_tls(broker: LocalBroker) -> None:
    tls = ["--tls", "--tls-ca", broker.tls_ca_file, "--endpoint", broker.tls_endpoint]
    for words in (["topic", "list"], ["broker", "status"], ["health"], ["group", "list"]):
        code, output = run(*words, *tls)
        assert code == 0, output
    assert "orders" in run("topic", "list", *tls)[1]
    # The next command of the process is in plaintext again.
    assert run("topic", "list", "--endpoint", broker.endpoint)[0] == 0


def test_a_command_reads_its_tls_from_the_environment(broker: LocalBroker) -> None:
    variables = {
        "ROCKETPY_TLS": "1",
        "ROCKETPY_TLS_CA": broker.tls_ca_file,
        "ROCKETPY_ENDPOINT": broker.tls_endpoint,
    }
    result = CliRunner().invoke(app, ["topic", "list"], env=variables)
    assert result.exit_code == 0, result.output


def test_a_failure_names_its_reason_and_the_option(broker: LocalBroker, tmp_path: Path) -> None:
    foreign = str(Authority(tmp_path).path)
    secure, plain = ["--endpoint", broker.tls_endpoint], ["--endpoint", broker.endpoint]
    ca = ["--tls", "--tls-ca", broker.tls_ca_file]
    cases = [
        (["--tls", "--tls-ca", foreign, *secure], "not accepted.*--tls-ca"),
        (["--tls", *secure], "not accepted.*--tls-ca"),
        ([*ca, "--tls-server-name", "other", *secure], "not accepted.*--tls-server-name"),
        ([*ca, *plain], "serves no TLS; leave out --tls"),
        (secure, "serves only TLS; set --tls"),
        (["--tls", "--tls-ca", "/no/ca.pem", *secure], "--tls-ca is '/no/ca.pem': No such file"),
        (["--tls-ca", foreign, *secure], "set without --tls"),
        (["--tls-server-name", "h", *secure], "set without --tls"),
        (["--tls", "--tls-key", foreign, *secure], "go together"),
        (
            ["--tls", "--tls-certificate", foreign, "--tls-key", foreign, *secure],
            "--tls-certificate and --tls-key are",
        ),
    ]
    for words, reason in cases:
        code, output = run("topic", "list", *words)
        assert code == 1, words
        assert re.search(reason, output), (words, output)
        assert len(output.splitlines()) == 1, output


def test_a_certificate_of_another_name_is_accepted_by_the_server_name(
    broker: LocalBroker,
) -> None:
    with BrokerConnection(broker.tls_endpoint, tls=tls_of(broker, "localhost")) as connection:
        assert broker_info(connection).broker_name == "broker-a"


def test_the_client_reports_the_reason_by_its_own_names(broker: LocalBroker) -> None:
    with (
        BrokerConnection(broker.tls_endpoint, tls=tls_of(broker, "other")) as connection,
        pytest.raises(UnreachableError, match="check ca_file and server_name"),
    ):
        broker_info(connection)
    with (
        BrokerConnection(broker.tls_endpoint) as connection,
        pytest.raises(UnreachableError, match="serves only TLS; set tls"),
    ):
        broker_info(connection)
    with pytest.raises(ClientError, match=r"ca_file is '/no/ca\.pem'"):
        BrokerConnection(broker.tls_endpoint, tls=TlsConfig(ca_file="/no/ca.pem"))


def test_a_local_broker_serves_tls_beside_plaintext(broker: LocalBroker) -> None:
    broker.send("orders", "plain")
    context = ssl.create_default_context(cafile=broker.tls_ca_file)
    for port in (broker.remoting_endpoint, broker.name_server):
        host, _, number = port.rpartition(":")
        with (
            socket.create_connection((host, int(number))) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            assert secured.version() == "TLSv1.3"
    for scheme, how in (("http", None), ("https", context)):
        url = f"{scheme}://{broker.http_endpoint}/healthz"
        with urllib.request.urlopen(url, context=how) as answer:
            assert b'"serving"' in answer.read()
    handle = pickle.loads(pickle.dumps(broker))
    assert (handle.tls_endpoint, handle.tls_ca_file) == (broker.tls_endpoint, broker.tls_ca_file)


def test_a_restart_keeps_the_port_and_the_certificate() -> None:
    with LocalBroker(tls=True) as local:
        endpoint, before = local.tls_endpoint, Path(local.tls_ca_file).read_bytes()
        local.restart()
        assert (local.tls_endpoint, Path(local.tls_ca_file).read_bytes()) == (endpoint, before)
        with BrokerConnection(endpoint, tls=tls_of(local)) as connection:
            assert broker_info(connection).broker_name == "broker-a"


def test_a_local_broker_takes_files_and_asks_clients_for_certificates(tls_files: TlsFiles) -> None:
    authority, server = tls_files.authority, tls_files.server
    tls = LocalTls(server.certificate, server.key, authority.path, authority.path)
    own = authority.client(authority.issue("client"))
    with LocalBroker(tls=tls) as local:
        assert local.tls_ca_file == str(authority.path)
        with BrokerConnection(local.tls_endpoint, tls=own) as connection:
            assert broker_info(connection).broker_name == "broker-a"
        with (
            BrokerConnection(local.tls_endpoint, tls=authority.client()) as connection,
            pytest.raises(UnreachableError, match="refuses the client's certificate"),
        ):
            broker_info(connection)


def test_a_local_broker_without_tls_has_no_addresses_of_it(tls_files: TlsFiles) -> None:
    with pytest.raises(LocalBrokerError, match="give LocalBroker tls=True"):
        LocalBroker().tls_endpoint  # noqa: B018
    with pytest.raises(LocalBrokerError, match="give LocalBroker tls=True"):
        LocalBroker().tls_ca_file  # noqa: B018
    without_ca = LocalBroker(tls=LocalTls(tls_files.server.certificate, tls_files.server.key))
    with pytest.raises(LocalBrokerError, match=r"tls_ca_file is unknown: .*set LocalTls\.ca"):
        without_ca.tls_ca_file  # noqa: B018
    broken = LocalBroker(tls=LocalTls(tls_files.server.certificate, tls_files.server.certificate))
    with pytest.raises(LocalBrokerError, match="--tls-key"), broken:
        pass


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ROCKETPY, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def test_the_commands_of_servers_serve_tls(tls_files: TlsFiles, tmp_path: Path) -> None:
    # An enforcing name server, and an enforcing broker that registers there.
    pair = [
        "--tls-certificate",
        str(tls_files.server.certificate),
        "--tls-key",
        str(tls_files.server.key),
    ]
    ca = str(tls_files.authority.path)
    mutual = [*pair, "--tls-client-ca", ca, "--tls-mode", "enforcing"]
    with started("nameserver", "--port", "0", *mutual) as name_server:
        assert name_server.stdout is not None
        address = name_server.stdout.readline().split()[-1]
        registering = ["--name-server", address, "--name-server-tls", "--name-server-tls-ca", ca]
        words = ["broker", "--port", "0", "--name-server-port", "0", *registering, *mutual]
        with started(*words) as broker:
            assert broker.stdout is not None
            endpoint = broker.stdout.readline().split()[4]
            client = [*pair, "--tls", "--tls-ca", ca, "--endpoint", endpoint]
            code, output = run("broker", "status", "--json", *client)
            assert code == 0, output
            # A client without a certificate: gRPC itself writes nothing about it.
            assert run("topic", "list", "--tls", "--tls-ca", ca, "--endpoint", endpoint)[0] == 1
            broker.send_signal(signal.SIGTERM)
            assert broker.stderr is not None
            assert "handshake failed" not in broker.stderr.read().replace("its TLS handshake", "")
        name_server.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["broker", "--tls-mode", "enforcing"], "--tls-mode"),
        (
            ["broker", "--tls-self-signed", "--tls-mode", "enforcing", "--tls-port", "1"],
            "is 1, but --tls-mode is",
        ),
        (["broker", "--tls-certificate", "/no/c.pem"], "but --tls-key is missing; give both, or"),
        (["broker", "--name-server-tls-ca", "/no/ca.pem"], "without --name-server-tls"),
        (["broker", "--name-server-tls", "--name-server-tls-ca", "/no/ca.pem"], "No such file"),
        (["nameserver", "--tls-mode", "permissive"], "--tls-mode"),
    ],
)
def test_wrong_options_of_servers_are_refused(words: list[str], reason: str) -> None:
    code, output = run(*words)
    assert code == 2
    assert reason in " ".join(output.split())

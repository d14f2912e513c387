"""Options of the addresses where a broker listens and registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy_broker.config import (
    SLAVES_MAX,
    BrokerRole,
    ConsoleMode,
    Replication,
    ServerTls,
    SigningUser,
    TlsMode,
)
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.registration.addresses import check_advertised, parse_name_servers
from rocketpy_broker.services.replication.options import replication_of
from rocketpy_proto.tls import TlsConfig, TlsFileError

PORT, REMOTING_PORT, NAME_SERVER_PORT, HTTP_PORT = 8081, 10911, 9876, 5557

Host = Annotated[
    str,
    typer.Option(
        help="Address to listen on. An address beyond loopback needs users, or --insecure."
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Accept clients of other machines without users: each can read, write and delete "
        "everything.",
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(
        help="File of the users, written by `rocketpy user`. Default: config/users.json in --data."
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help=f"Port to listen on; 0 = any free one. Default: {PORT}, a free one with --ephemeral.",
    ),
]
RemotingPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="listenPort: the port for RocketMQ's clients and tools; 0 = off. Default: "
        f"{REMOTING_PORT}, or a free port if it is in use or --port is 0.",
    ),
]
NameServerPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port of the name server in the broker's process; 0 = off. Default: "
        f"{NAME_SERVER_PORT}, or a free port if it is in use or --port is 0.",
    ),
]
NameServers = Annotated[
    str,
    typer.Option(
        "--name-server",
        envvar="ROCKETPY_NAME_SERVER",
        help="namesrvAddr: name servers where the broker registers, such as "
        "'ns1:9876;ns2:9876'. Default: none but its own.",
    ),
]
AdvertiseHost = Annotated[
    str,
    typer.Option(
        envvar="ROCKETPY_ADVERTISE_HOST",
        help="brokerIP1: the host that name servers give to RocketMQ's clients. Default: the "
        "address by which a client has reached the name server.",
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        help="tls.server.certPath: the server's certificate and its intermediate certificates, in "
        "PEM form. A changed file is used for new connections.",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        help="tls.server.keyPath: the key of --tls-certificate in PEM form, without a password.",
    ),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        help="tls.server.trustCertPath: each client that uses TLS needs a certificate of these "
        "authorities, in PEM form.",
    ),
]
TlsSelfSigned = Annotated[
    bool,
    typer.Option(
        "--tls-self-signed",
        help="Make a self-signed certificate, in the store's folder config/tls, and renew it "
        "before its end.",
    ),
]
TlsModeName = Annotated[
    TlsMode | None,
    typer.Option(
        "--tls-mode",
        help="tls.server.mode: disabled = plaintext alone, permissive = both (default with a "
        "certificate), enforcing = TLS alone.",
    ),
]
TlsPortNumber = Annotated[
    int | None,
    typer.Option(
        "--tls-port",
        min=0,
        max=65535,
        help="gRPC port for TLS in the permissive mode, beside --port; 0 = any free one (default). "
        "All other ports serve both.",
    ),
]
NameServerTls = Annotated[
    bool,
    typer.Option(
        "--name-server-tls",
        help="Connect to --name-server with TLS. A name server that asks for a certificate gets "
        "--tls-certificate.",
    ),
]
NameServerTlsCa = Annotated[
    Path | None,
    typer.Option(
        help="Authorities that verify the name servers, in PEM form. Default: the system's."
    ),
]
NameServerAccessKey = Annotated[
    str,
    typer.Option(
        envvar="ROCKETPY_NAME_SERVER_ACCESS_KEY",
        help="User that signs the registration at --name-server, if the name server has users: an "
        "admin.",
    ),
]
NameServerSecretKey = Annotated[
    str,
    typer.Option(
        envvar="ROCKETPY_NAME_SERVER_SECRET_KEY",
        help="The secret key of --name-server-access-key. A command line is visible to other users "
        "of this machine.",
    ),
]
AdvertisePort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65535,
        envvar="ROCKETPY_ADVERTISE_PORT",
        help="The port that name servers give to RocketMQ's clients. Default: --remoting-port.",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="HTTP port for the console, the JSON API, /metrics and /healthz; 0 = off. Default: "
        f"{HTTP_PORT}, or a free port if it is in use or --port is 0.",
    ),
]
Console = Annotated[
    ConsoleMode,
    typer.Option(help="The console, on --http-port: read-only = pages without actions."),
]

HaPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="haListenPort: the port where slaves get the log; 0 = any free one. RocketMQ's is the "
        "remoting port + 1. Slaves have no credentials, so beyond loopback it needs --insecure. "
        "Default: off.",
    ),
]
Role = Annotated[
    BrokerRole,
    typer.Option(
        help="brokerRole: with SYNC_MASTER an acknowledgement waits for slaves, see "
        "--in-sync-replicas. A SLAVE copies its master, and serves reads alone."
    ),
]
BrokerId = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=SLAVES_MAX,
        help="brokerId of a SLAVE: a different one for each slave of a master. Default: 1.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="The master of a SLAVE: its host and --remoting-port, such as 10.0.0.5:10911. "
        "Default: the master of --broker-name that --name-server returns."
    ),
]
SlaveRead = Annotated[
    bool,
    typer.Option(
        "--slave-read-enable",
        help="slaveReadEnable: send clients that read messages from disk to a slave.",
    ),
]
InSyncReplicas = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=SLAVES_MAX + 1,
        help="inSyncReplicas: the number of brokers, this one included, that have a message before "
        "it is acknowledged. Default: as in RocketMQ 4, one slave; without a slave near the log's "
        "end a send gets SLAVE_NOT_AVAILABLE at once.",
    ),
]
SlaveTimeoutMs = Annotated[
    int, typer.Option(min=1, help="slaveTimeout: the wait for slaves; then FLUSH_SLAVE_TIMEOUT.")
]
HaTransferBytes = Annotated[
    int | None,
    typer.Option(
        "--ha-transfer-bytes-per-second",
        min=1,
        help="maxHaTransferByteInSecond: the limit for each slave. Default: none.",
    ),
]


def replication(
    role: BrokerRole,
    broker_id: int | None,
    master: str | None,
    port: int | None,
    in_sync_replicas: int | None,
    name_servers: Sequence[str],
    timeout_ms: int,
    bytes_per_second_max: int | None,
) -> Replication:
    """Returns the broker's part in replication. Raises typer.BadParameter."""
    try:
        found = replication_of(
            *(role, broker_id, master, port, in_sync_replicas), has_name_servers=bool(name_servers)
        )
    except ParameterIllegalError as error:
        raise typer.BadParameter(str(error), param_hint=error.name) from error
    return replace(found, slave_timeout_ms=timeout_ms, bytes_per_second_max=bytes_per_second_max)


def network_settings(
    port: int,
    remoting_port: int | None,
    name_server_port: int | None,
    http_port: int | None,
    name_server: str,
    advertise_host: str,
    advertise_port: int | None,
) -> dict[str, Any]:
    """Returns fields of the broker's configuration. Raises typer.BadParameter."""
    try:
        name_servers = parse_name_servers(name_server)
    except ParameterIllegalError as error:
        raise typer.BadParameter(str(error), param_hint="--name-server") from error
    if name_servers and remoting_port == 0:
        raise typer.BadParameter(
            "name servers give the address of --remoting-port, which is off",
            param_hint="--name-server",
        )
    try:
        if advertise_host:
            check_advertised(advertise_host)
    except ParameterIllegalError as error:
        raise typer.BadParameter(str(error), param_hint="--advertise-host") from error
    preferred = {
        default
        for given, default in (
            (remoting_port, REMOTING_PORT),
            (name_server_port, NAME_SERVER_PORT),
            (http_port, HTTP_PORT),
        )
        if given is None
    }
    return {
        "port": port,
        "remoting_port": _chosen(port, remoting_port, REMOTING_PORT),
        "name_server_port": _chosen(port, name_server_port, NAME_SERVER_PORT),
        "http_port": _chosen(port, http_port, HTTP_PORT),
        "preferred_ports": frozenset(preferred),
        "name_servers": name_servers,
        "advertise_host": advertise_host.strip("[]") or None,
        "advertise_port": advertise_port,
    }


def server_tls(
    mode: TlsMode | None,
    certificate: Path | None,
    key: Path | None,
    client_ca: Path | None,
    port: int | None = None,
    *,
    is_self_signed: bool,
) -> ServerTls:
    """Returns the TLS of a server's ports. Raises typer.BadParameter."""
    try:
        return ServerTls.of(mode, certificate, key, client_ca, port, is_self_signed=is_self_signed)
    except ParameterIllegalError as error:
        raise typer.BadParameter(str(error), param_hint=error.name) from error


def name_server_tls(
    ca: Path | None, certificate: Path | None, key: Path | None, *, is_used: bool
) -> TlsConfig | None:
    """Returns the TLS of connections to name servers. Raises typer.BadParameter."""
    if not is_used:
        if ca is not None:
            raise typer.BadParameter(
                "is set without --name-server-tls; set both", param_hint="--name-server-tls-ca"
            )
        return None
    tls = TlsConfig.of(ca, certificate, key)
    try:
        tls.context()
    except TlsFileError as error:
        hint = "--name-server-tls-ca" if error.is_ca else "--tls-certificate"
        raise typer.BadParameter(f"{error}; give a file in PEM form", param_hint=hint) from error
    return tls


def name_server_user(name_server: str, access_key: str, secret_key: str) -> SigningUser | None:
    """Returns the user that signs requests to name servers. Raises typer.BadParameter."""
    if bool(access_key) != bool(secret_key):
        raise typer.BadParameter(
            "set --name-server-access-key and --name-server-secret-key, or neither",
            param_hint="--name-server-access-key",
        )
    if access_key and not name_server:
        raise typer.BadParameter(
            "is set without --name-server; set both", param_hint="--name-server-access-key"
        )
    return SigningUser(access_key, secret_key) if access_key else None


def _chosen(port: int, given: int | None, default: int) -> int | None:
    """Returns the port of a server: None for off, 0 for a free one."""
    if given is None:
        return default if port else 0
    return given or None

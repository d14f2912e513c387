"""Certificates of the ports: refused at the start, made, renewed, and changed while it runs."""

from __future__ import annotations

import logging
import ssl
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from rocketpy_broker.config import ServerTls, TlsMode
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.security import certificates as certificates_module
from rocketpy_broker.server.security.certificates import (
    DAY_MS,
    FILE_BYTES_MAX,
    RELOAD_MS,
    RENEWED_BEFORE_DAYS,
    VALID_DAYS,
    CertificateError,
    ServerCertificates,
    own_names,
)
from rocketpy_proto.tls import TlsConfig
from tests.broker.security.tls.callers import ask_grpc, ask_http, ask_remoting, is_served, opened
from tests.support.broker.clients.remoting_client import RemotingClient
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.tls_files import TlsFiles

PATH = Path("x.pem")
SELF_SIGNED = ServerTls.of(is_self_signed=True)


def certificate_of_another_key(tls_files: TlsFiles) -> ServerTls:
    other = tls_files.authority.issue("other")
    return replace(tls_files.tls(), key=other.key)


def encrypted_key(tls_files: TlsFiles) -> ServerTls:
    key = serialization.load_pem_private_key(tls_files.server.key.read_bytes(), None)
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    tls_files.server.key.write_bytes(encoded)
    return tls_files.tls()


def valid_between(begin_days: int, end_days: int) -> Callable[[TlsFiles], ServerTls]:
    def tls(tls_files: TlsFiles) -> ServerTls:
        pair = tls_files.authority.issue("server", begin_days=begin_days, end_days=end_days)
        assert pair == tls_files.server
        return tls_files.tls()

    return tls


def with_text(field: str, text: bytes) -> Callable[[TlsFiles], ServerTls]:
    def tls(tls_files: TlsFiles) -> ServerTls:
        found = tls_files.tls(is_mutual=True)
        getattr(found, field).write_bytes(text)
        return found

    return tls


def without(field: str) -> Callable[[TlsFiles], ServerTls]:
    def tls(tls_files: TlsFiles) -> ServerTls:
        found = tls_files.tls(is_mutual=True)
        getattr(found, field).unlink()
        return found

    return tls


BAD = {
    "no certificate": (without("certificate"), "--tls-certificate .*No such file"),
    "no key": (without("key"), "--tls-key .*No such file"),
    "no authority": (without("client_ca"), "--tls-client-ca .*No such file"),
    "text": (with_text("certificate", b"text"), "--tls-certificate .*PEM form"),
    "an empty key": (with_text("key", b""), "--tls-key .*PEM form"),
    "an authority of text": (with_text("client_ca", b"text"), "--tls-client-ca .*PEM form"),
    "too much": (with_text("key", bytes(FILE_BYTES_MAX + 1)), "larger than"),
    "another key": (certificate_of_another_key, "the key is not that of the certificate"),
    "a key with a password": (encrypted_key, "without a password"),
    "an expired one": (valid_between(-9, -1), "certificate has expired"),
    "one of the future": (valid_between(2, 9), "certificate is not yet valid"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_pair_ends_the_start_with_its_reason(
    start_broker: StartBroker, tls_files: TlsFiles, name: str
) -> None:
    spoil, reason = BAD[name]
    with pytest.raises(CertificateError, match=reason) as refused:
        async with start_broker(tls=spoil(tls_files)):
            pass
    assert str(tls_files.server.certificate.parent) in str(refused.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"certificate": PATH}, f"--tls-certificate is '{PATH}', but --tls-key is missing; give"),
        ({"key": PATH}, f"--tls-key is '{PATH}', but --tls-certificate is missing; give both, or"),
        ({"mode": TlsMode.ENFORCING}, "--tls-mode is 'enforcing', but there is no certificate; g"),
        ({"mode": TlsMode.PERMISSIVE, "client_ca": PATH}, "--tls-mode is 'permissive', but there"),
        ({"client_ca": PATH}, f"--tls-client-ca is '{PATH}', but there is no certificate; give"),
        (
            {"is_self_signed": True, "certificate": PATH, "key": PATH},
            f"--tls-certificate is '{PATH}', but --tls-self-signed is given too; leave out one",
        ),
        ({"port": 1}, "--tls-port is 1, but --tls-mode is 'disabled'; leave it out, or set --tls"),
        (
            {"is_self_signed": True, "mode": TlsMode.ENFORCING, "port": 1},
            "--tls-port is 1, but --tls-mode is 'enforcing'; leave it out, or set --tls-mode",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    given: dict[str, object], reason: str
) -> None:
    with pytest.raises(ParameterIllegalError, match=reason):
        ServerTls.of(**given)  # type: ignore[arg-type]


def test_a_pair_makes_the_mode_permissive_and_disabled_reads_no_file(tmp_path: Path) -> None:
    missing = ServerTls.of(TlsMode.DISABLED, tmp_path / "x.pem", tmp_path / "x.key")
    assert ServerCertificates.of(missing, None, (), ManualClock()) is None
    assert SELF_SIGNED.mode is TlsMode.PERMISSIVE
    assert ServerTls.of().mode is TlsMode.DISABLED


# --- Self-signed pairs ---


def made(folder: Path, clock: ManualClock, *hosts: str | None) -> ServerCertificates:
    found = ServerCertificates.of(SELF_SIGNED, folder, hosts, clock)
    assert found is not None
    return found


def parsed(certificates: ServerCertificates) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificates.pair.certificate)


def now_clock() -> ManualClock:
    return ManualClock(time.time_ns() // 1_000_000)


def test_a_self_signed_pair_is_made_once_with_the_names_of_the_server(tmp_path: Path) -> None:
    first = made(tmp_path, now_clock(), "0.0.0.0", "broker.corp", None)
    again = made(tmp_path, now_clock(), "0.0.0.0", "broker.corp")
    assert again.pair == first.pair
    for path in (tmp_path / "tls").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = parsed(first).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each.value) for each in found} == {*own_names(["broker.corp"])}
    assert {"localhost", "127.0.0.1", "::1", "broker.corp"} <= {*own_names(["broker.corp"])}


def test_a_new_name_makes_a_new_certificate_of_the_same_key(tmp_path: Path) -> None:
    first, second = made(tmp_path, now_clock()), made(tmp_path, now_clock(), "broker.corp")
    assert second.pair.certificate != first.pair.certificate
    assert second.pair.key == first.pair.key


async def test_a_self_signed_certificate_is_renewed_before_its_end(tmp_path: Path) -> None:
    # A client that trusts the authority accepts both.
    clock = now_clock()
    age_days = VALID_DAYS - RENEWED_BEFORE_DAYS
    clock.jump(-(age_days + 1) * DAY_MS)
    certificates = made(tmp_path, clock)
    older, context = certificates.pair, certificates.context
    clock.jump((age_days - 1) * DAY_MS)
    await certificates.reload()
    assert certificates.pair is older
    clock.jump(2 * DAY_MS)
    await certificates.reload()
    assert certificates.pair.certificate != older.certificate
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
    # The default of Python 3.13.
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT
    for served in (context, certificates.context):
        handshake(served, trusted)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises ssl.SSLError unless the client accepts the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in (*ends, *ends):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert ends[0].version() is not None


def test_a_damaged_self_signed_pair_is_made_again(tmp_path: Path) -> None:
    first = made(tmp_path, now_clock())
    for name in ("certificate.pem", "ca.pem"):
        (tmp_path / "tls" / name).write_bytes(b"torn")
        second = made(tmp_path, now_clock())
        assert second.pair.key == first.pair.key
        assert second.pair.certificate != first.pair.certificate
    for name in ("key.pem", "certificate.pem"):
        (tmp_path / "tls" / name).write_bytes(b"torn")
    third = made(tmp_path, now_clock())
    assert third.pair.key != first.pair.key
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
    handshake(third.context, trusted)


def test_without_its_package_a_self_signed_pair_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(
        CertificateError, match=r"pip install 'pyspark-rocketpy\[broker,security\]'"
    ):
        made(tmp_path, now_clock())


def test_a_self_signed_pair_without_a_folder_is_refused() -> None:
    with pytest.raises(CertificateError, match="--tls-self-signed needs --data"):
        ServerCertificates.of(SELF_SIGNED, None, (), now_clock())


async def test_a_broker_serves_its_self_signed_certificate(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker(tls=SELF_SIGNED, clock=now_clock(), remoting_port=0) as running:
        path = tmp_path / "config" / "tls" / "ca.pem"
        assert await is_served(ask_grpc, running.ready.tls_port, TlsConfig.of(path, None, None))
        assert await is_served(
            ask_remoting, running.ready.remoting_port, TlsConfig.of(path, None, None)
        )


# --- Changes ---


async def served_certificate(port: int | None, tls: TlsConfig) -> bytes:
    async with opened(port or 0, tls) as (_, writer):
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    name = certificates_module.__name__
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == name and each.levelno == logging.WARNING
    ]


async def looked(running: RunningBroker) -> None:
    """Lets the broker reload its tls_files."""
    certificates = running.broker._certificates
    assert certificates is not None
    await certificates.reload()


async def test_a_changed_pair_serves_new_connections_of_all_ports(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    tls = tls_files.authority.client()
    foreign = tls_files.foreign.client()
    async with start_broker(
        tls=tls_files.tls(), remoting_port=0, name_server_port=0, http_port=0
    ) as running:
        ready = running.ready
        asked = [
            (ask_grpc, ready.tls_port),
            (ask_remoting, ready.remoting_port),
            (ask_remoting, ready.name_server_port),
            (ask_http, ready.http_port),
        ]
        async with opened(ready.remoting_port or 0, tls) as (reader, writer):
            tls_files.server.replace(tls_files.foreign.issue("changed"))
            running.clock.advance(RELOAD_MS)
            certificates = running.broker._certificates
            assert certificates is not None
            await until(lambda: certificates.pair.key == tls_files.server.key.read_bytes())
            for ask, port in asked:
                assert await is_served(ask, port, foreign), ask
                assert not await is_served(ask, port, tls), ask
            # The connection from before goes on.
            await RemotingClient(reader, writer).ask(29_999)


@pytest.mark.parametrize("name", [name for name in BAD if "authority" not in name])
async def test_a_bad_change_keeps_the_pair_and_is_logged_once(
    start_broker: StartBroker, tls_files: TlsFiles, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    spoil, _ = BAD[name]
    kept, tls = tls_files.authority.issue("kept"), tls_files.authority.client()
    kept.replace(tls_files.server)
    async with start_broker(tls=tls_files.tls(), http_port=0) as running:
        before = await served_certificate(running.ready.http_port, tls)
        tls_files.server.replace(tls_files.authority.issue("next"))
        if name == "another key":
            tls_files.server.key.write_bytes(kept.key.read_bytes())
        else:
            spoil(tls_files)
        for _ in range(3):
            await looked(running)
        assert await served_certificate(running.ready.http_port, tls) == before
        (line,) = lines(caplog)
        assert "new connections still get the old certificate" in line
        tls_files.server.replace(tls_files.authority.issue("good"))
        await looked(running)
        assert await served_certificate(running.ready.http_port, tls) != before
        assert len(lines(caplog)) == 1


async def test_changed_authorities_of_clients_are_used(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    ours = tls_files.clients["with a certificate"]
    other = tls_files.clients["with a certificate of another authority"]
    tls = tls_files.tls(is_mutual=True)
    assert tls.client_ca is not None
    # The servers' authority stays in its own file.
    own = tls.client_ca.with_name("clients.pem")
    own.write_bytes(tls.client_ca.read_bytes())
    async with start_broker(tls=replace(tls, client_ca=own), remoting_port=0) as running:
        own.write_bytes(tls_files.foreign.path.read_bytes())
        await looked(running)
        for ask, port in (
            (ask_grpc, running.ready.tls_port),
            (ask_remoting, running.ready.remoting_port),
        ):
            assert await is_served(ask, port, other)
            assert not await is_served(ask, port, ours)

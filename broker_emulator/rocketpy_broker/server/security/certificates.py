"""Certificates of the broker's ports: their check, their reload, and self-signed pairs.

Files: a self-signed pair is `tls/certificate.pem` and `tls/key.pem` in the configuration folder,
beside its authority, `ca.pem`. Their owner alone may read them. A crash leaves the old file or the
new one; the next start makes the missing files.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import logging
import socket
import ssl
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy_broker.config import ServerTls, TlsMode
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.store.files.durable import make_folder, replace_bytes
from rocketpy_proto.tls import reason_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

logger = logging.getLogger(__name__)
# The time between two reads of the files.
RELOAD_MS = 5_000
DAY_MS = 86_400_000
# Certificates that the broker makes: their days, the days left at their renewal, and the days of
# their authority.
VALID_DAYS, RENEWED_BEFORE_DAYS, CA_DAYS = 365, 60, 3_650
# A client whose clock is late accepts the certificate, too.
BEGIN_BEFORE = dt.timedelta(days=1)
# A larger file is refused.
FILE_BYTES_MAX = 1 << 20
# Each end of a handshake in memory has at most this number of steps.
HANDSHAKE_STEPS = 4


class CertificateError(BrokerError):
    """A certificate, key or authority that cannot be used."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The contents of the files in use: certificates, key, and authorities of clients."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class ServerCertificates:
    """The certificates of a server's ports; changed files replace them.

    A port takes `context` and `pair` for each connection.
    """

    def __init__(
        self, config: ServerTls, folder: Path | None, names: Collection[str], clock: Clock
    ) -> None:
        """Takes the configuration folder and the server's names, for a self-signed pair."""
        self._config = config
        self._folder = None if folder is None else folder / "tls"
        self._names = names
        self._clock = clock
        self._tried: Pair | None = None
        self._logged = ""
        self.mode = config.mode
        self.context: ssl.SSLContext
        self.pair: Pair

    @classmethod
    def of(
        cls, config: ServerTls, folder: Path | None, hosts: Iterable[str | None], clock: Clock
    ) -> ServerCertificates | None:
        """Returns the certificates that a configuration asks for, opened; None without TLS.

        `hosts` are names of this server besides the machine's own. Raises CertificateError.
        """
        if config.mode is TlsMode.DISABLED:
            return None
        certificates = cls(config, folder, own_names(hosts), clock)
        certificates.open()
        return certificates

    @property
    def certificate_path(self) -> Path:
        """The file of the server's certificates. Raises CertificateError."""
        if self._config.certificate is not None:
            return self._config.certificate
        if self._folder is None:
            raise CertificateError("--tls-self-signed needs --data, the folder of the certificate")
        return self._folder / "certificate.pem"

    @property
    def _key_path(self) -> Path:
        return self._config.key or self.certificate_path.with_name("key.pem")

    def open(self) -> None:
        """Reads the files; first makes a self-signed pair if needed. Raises CertificateError."""
        self._renew()
        self.pair, self.context = self._read()
        self._tried = self.pair

    async def run(self) -> None:
        """Reads the files every RELOAD_MS until cancelled; a bad change keeps the pair in use."""
        while True:
            await sleep(self._clock, RELOAD_MS)
            await self.reload()

    async def reload(self) -> None:
        """Takes a changed pair. Logs a bad one once."""
        try:
            await asyncio.to_thread(self._renew)
            pair = await asyncio.to_thread(self._contents)
            if pair == self._tried:
                return
            self._tried = pair
            pair, context = await asyncio.to_thread(self._read)
        except CertificateError as error:
            self._log(str(error))
            return
        self._tried, self.pair, self.context = pair, pair, context
        self._logged = ""
        logger.info("new connections get the certificate that is now in %s", self.certificate_path)

    def _log(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            logger.warning("new connections still get the old certificate: %s", text)

    def _renew(self) -> None:
        if self._config.is_self_signed:
            path = self.certificate_path
            try:
                make_self_signed(path, self._key_path, self._names, self._clock.now_ms())
            except (OSError, ValueError) as error:
                raise CertificateError(f"{path} cannot be made: {reason_of(error)}") from error

    def _contents(self) -> Pair:
        ca = self._config.client_ca
        return Pair(
            _bytes_of(self.certificate_path, "--tls-certificate"),
            _bytes_of(self._key_path, "--tls-key"),
            None if ca is None else _bytes_of(ca, "--tls-client-ca"),
        )

    def _read(self) -> tuple[Pair, ssl.SSLContext]:
        """Returns the checked files. Raises CertificateError."""
        pair = self._contents()
        path, ca = self.certificate_path, self._config.client_ca
        context = server_context(path, self._key_path)
        check_served(path, context)
        if ca is not None:
            try:
                context.load_verify_locations(ca)
            except (OSError, ValueError) as error:
                raise CertificateError(
                    f"--tls-client-ca {ca}: {reason_of(error)}; give a file of certificates in "
                    "PEM form"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        if self._contents() != pair:
            raise CertificateError(
                f"{path} or its key changed while the broker read them; it reads both again later"
            )
        return pair, context


def _bytes_of(path: Path, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateError(f"{option} {path}: {reason_of(error)}; name another file") from error
    if len(found) > FILE_BYTES_MAX:
        raise CertificateError(
            f"{option} {path}: larger than {FILE_BYTES_MAX} bytes; give a file of certificates"
        )
    return found


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Returns a server's TLS context. Raises CertificateError for files that are no pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password keeps OpenSSL from a prompt for one.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            reason = "the key is not that of the certificate"
        raise CertificateError(
            f"--tls-certificate {certificate} and --tls-key {key}: {reason}; give a certificate "
            "and its key in PEM form, without a password"
        ) from error
    return context


def check_served(certificate: Path, server: ssl.SSLContext) -> None:
    """Raises CertificateError if a client that trusts the certificate would still refuse it.

    It does a handshake in memory: that finds an expired certificate, too.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        client.load_verify_locations(certificate)
        for _ in range(HANDSHAKE_STEPS):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(
            f"--tls-certificate {certificate}: {error.verify_message}; give a certificate that "
            "clients accept now"
        ) from error
    except OSError as error:
        raise CertificateError(
            f"--tls-certificate {certificate}: no handshake succeeds ({reason_of(error)}); give "
            "another pair"
        ) from error


# --- Self-signed pairs ---


def own_names(hosts: Iterable[str | None]) -> list[str]:
    """Returns the names in a self-signed certificate: loopback's, the machine's, and `hosts`."""
    given = [host.strip("[]") for host in hosts if host]
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *given]
    return [*dict.fromkeys(name for name in names if name and name.isascii() and not _is_any(name))]


def _is_any(name: str) -> bool:
    """True if it is an address such as 0.0.0.0, which no client connects to."""
    try:
        return ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


def make_self_signed(certificate: Path, key: Path, names: Collection[str], now_ms: int) -> None:
    """Writes a pair and its authority, unless both exist for these names and expire late enough.

    Certificate and authority have one key. Clients trust the authority, `ca.pem` beside them, so
    they also accept a renewed certificate. Raises CertificateError, OSError.
    """
    try:
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError as error:
        raise CertificateError(
            "--tls-self-signed needs the package cryptography; install it with: "
            "pip install 'pyspark-rocketpy[broker,security]'"
        ) from error
    now = dt.datetime.fromtimestamp(now_ms / 1_000, dt.timezone.utc)
    ca, pem = certificate.with_name("ca.pem"), serialization.Encoding.PEM
    has_ca = _is_usable(ca, (), now, VALID_DAYS)
    if has_ca and key.exists() and _is_usable(certificate, names, now, RENEWED_BEFORE_DAYS):
        return
    make_folder(certificate.parent)
    private, is_new = _private_key(key)
    if is_new or not has_ca:
        replace_bytes(ca, _signed(private, (), now, CA_DAYS).public_bytes(pem))
    replace_bytes(certificate, _signed(private, names, now, VALID_DAYS).public_bytes(pem))
    logger.info("made the certificate %s, for %s", certificate, ", ".join(names))


def _is_usable(path: Path, names: Collection[str], now: dt.datetime, days: int) -> bool:
    """Returns True for a valid certificate of the names that lasts longer than `days`."""
    from cryptography import x509

    known = set[str]()
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        if names:
            alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            known = {str(each.value) for each in alternative.value}
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    left = found.not_valid_after_utc - now
    has_begun = found.not_valid_before_utc <= now
    return has_begun and left > dt.timedelta(days=days) and known >= {*names}


def _private_key(path: Path) -> tuple[EllipticCurvePrivateKey, bool]:
    """Returns the key in a file, and True if it is new and was written now. Raises OSError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    with suppress(FileNotFoundError, ValueError, TypeError):
        found = serialization.load_pem_private_key(path.read_bytes(), None)
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found, False
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    replace_bytes(path, encoded)
    return key, True


def _signed(
    key: EllipticCurvePrivateKey, names: Collection[str], now: dt.datetime, days: int
) -> x509.Certificate:
    """Returns the certificate of a server with these names, or the authority without names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def subject(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    authority = subject("rocketpy authority")
    basic = x509.BasicConstraints(ca=not names, path_length=None if names else 0)
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject("rocketpy broker") if names else authority)
        .issuer_name(authority)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEGIN_BEFORE)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(basic, critical=True)
        .add_extension(_key_usage(is_authority=not names), critical=True)
        # Strict clients, such as Python 3.13, refuse certificates without these two.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    if names:
        alternative = x509.SubjectAlternativeName([_name(name) for name in names])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(alternative, critical=False)
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(key, hashes.SHA256())


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

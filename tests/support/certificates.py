"""Certificates of an authority of the tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rocketpy_proto.tls import TlsConfig

HOSTS = ("localhost", "127.0.0.1", "::1")
PEM = serialization.Encoding.PEM
_SIGNING = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class PairFiles:
    """A certificate and its key, in PEM form."""

    certificate: Path
    key: Path

    def replace(self, other: PairFiles) -> None:
        """Takes the contents of another pair."""
        self.key.write_bytes(other.key.read_bytes())
        self.certificate.write_bytes(other.certificate.read_bytes())


@dataclass(frozen=True)
class Authority:
    """An authority with its file in a folder, where its pairs are written."""

    folder: Path
    name: str = "authority"

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @property
    def _subject(self) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"the tests' {self.name}")])

    @cached_property
    def path(self) -> Path:
        """The file of the authority's certificate."""
        path = self.folder / f"{self.name}.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._subject, self._key, 0, 30)
        builder = builder.add_extension(basic, critical=True)
        builder = builder.add_extension(_SIGNING, critical=True)
        signed = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(PEM))
        return path

    def issue(
        self, name: str, *, hosts: Sequence[str] = HOSTS, begin_days: int = -1, end_days: int = 30
    ) -> PairFiles:
        """Returns a new pair that is valid between two days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([_name(host) for host in hosts])
        builder = self._builder(subject, key, begin_days, end_days)
        signed = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        pair = PairFiles(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        pair.certificate.write_bytes(signed.public_bytes(PEM))
        pair.key.write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin_days: int, end_days: int
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=begin_days, hours=-1))
            .not_valid_after(now + dt.timedelta(days=end_days))
            # Python 3.13 refuses certificates without these two.
            .add_extension(_key_id(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def client(self, pair: PairFiles | None = None) -> TlsConfig:
        """Returns the TLS of a client that trusts the authority, with a certificate."""
        if pair is None:
            return TlsConfig.of(self.path, None, None)
        return TlsConfig.of(self.path, pair.certificate, pair.key)


def _key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

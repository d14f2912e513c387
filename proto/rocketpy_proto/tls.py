"""TLS of clients: files, contexts, and errors of files.

The connector, the broker's client and the broker as a client of name servers use it. Planners
import it without TLS, so `ssl` is imported at its first use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl


class TlsNames(NamedTuple):
    """The names of a client's options, as its errors show them."""

    tls: str
    ca: str
    cert: str
    key: str
    server_name: str


class TlsFileError(ValueError):
    """Files that cannot be used; `is_ca` if they are the authorities, not the client's pair."""

    def __init__(self, reason: str, *, is_ca: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_ca = is_ca

    def text(self, tls: TlsConfig, names: TlsNames) -> str:
        """Returns the error of the options with these names."""
        if self.is_ca:
            return f"{names.ca} is {tls.ca_file!r}: {self.reason}"
        return f"{names.cert} and {names.key} are {tls.cert_file!r} and {tls.key_file!r}: {self}"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS files in PEM form, and verification.

    Any peer can pose as the server without verification, as in RocketMQ's default. The system's
    authorities apply without `ca_file`. Certificate and key are for servers that ask for one.
    `server_name` is the name in the server's certificate, if it is not the host of the address.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True
    server_name: str | None = None

    @classmethod
    def of(
        cls,
        ca: Path | str | None,
        certificate: Path | str | None,
        key: Path | str | None,
        server_name: str | None = None,
    ) -> TlsConfig:
        """Returns the configuration with these files, which verifies servers."""
        ca_file, cert_file, key_file = (
            None if path is None else str(path) for path in (ca, certificate, key)
        )
        return cls(ca_file, cert_file, key_file, server_name=server_name)

    def absolute(self) -> TlsConfig:
        """Returns the configuration with absolute paths, against the working directory."""
        ca_file, cert_file, key_file = (
            None if path is None else str(Path(path).absolute())
            for path in (self.ca_file, self.cert_file, self.key_file)
        )
        return replace(self, ca_file=ca_file, cert_file=cert_file, key_file=key_file)

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context. Raises TlsFileError for files that cannot be used."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise TlsFileError(reason_of(error), is_ca=True) from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            try:
                # The password keeps OpenSSL from asking for one.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise TlsFileError(reason_of(error), is_ca=False) from error
        return context


def reason_of(error: Exception) -> str:
    """Returns the text of a system error, without its number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

"""An authority, a server's pair, and clients of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker.config import ServerTls, TlsMode
from rocketpy_proto.tls import TlsConfig
from tests.support.certificates import Authority, PairFiles


@dataclass(frozen=True)
class TlsFiles:
    """An authority of servers and clients, and a server's pair."""

    authority: Authority
    foreign: Authority
    server: PairFiles

    def tls(
        self,
        mode: TlsMode = TlsMode.PERMISSIVE,
        *,
        is_mutual: bool = False,
        port: int | None = None,
    ) -> ServerTls:
        """Returns the TLS of a server with the pair."""
        client_ca = self.authority.path if is_mutual else None
        return ServerTls.of(mode, self.server.certificate, self.server.key, client_ca, port)

    @property
    def clients(self) -> dict[str, TlsConfig | None]:
        """The kinds of clients, by name."""
        ours, foreign = self.authority, self.foreign
        expired = ours.issue("expired-client", begin_days=-9, end_days=-1)
        return {
            "plaintext": None,
            "without a certificate": ours.client(),
            "with a certificate": ours.client(ours.issue("client")),
            "with a certificate of another authority": ours.client(foreign.issue("other-client")),
            "with an expired certificate": ours.client(expired),
            "trusting another authority": foreign.client(),
        }


@pytest.fixture
def tls_files(tmp_path: Path) -> TlsFiles:
    """Returns new files, which a test may change."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    authority, foreign = Authority(folder), Authority(folder, "foreign-authority")
    return TlsFiles(authority, foreign, authority.issue("server"))

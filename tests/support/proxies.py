"""An HTTP proxy that records and refuses each request."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

USER = "someone:secret"
# Every spelling that a library reads.
VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass
class RecordingProxy:
    """A proxy's address, and the first line of each request."""

    address: str
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its URL, with credentials."""
        return f"http://{USER}@{self.address}"


@contextmanager
def recording_proxy() -> Iterator[RecordingProxy]:
    """Starts a proxy on a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = RecordingProxy(f"127.0.0.1:{server.getsockname()[1]}")

        def serve() -> None:
            # The loop ends when its socket is shut down.
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(10)
                        proxy.asked.append(connection.recv(4096).decode().partition("\r\n")[0])
                        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def environment_with(url: str, **others: str) -> Mapping[str, str]:
    """Returns this process's environment with the URL in every spelling, and without exceptions."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return kept | dict.fromkeys(VARIABLES, url) | others

"""Name servers in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.clients.remoting_client import name_server, start_name_server

__all__ = ["name_server", "start_name_server"]

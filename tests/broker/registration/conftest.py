"""Name servers for the brokers of each test of this folder."""

from __future__ import annotations

from tests.broker.registration.recorder import record_name_server
from tests.support.broker.clients.remoting_client import name_server, start_name_server

__all__ = ["name_server", "record_name_server", "start_name_server"]

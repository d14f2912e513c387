"""Brokers with remoting, one of them with users, in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.clients.remoting_client import name_server, remoting, start_name_server
from tests.support.broker.clients.users import secured

__all__ = ["name_server", "remoting", "secured", "start_name_server"]

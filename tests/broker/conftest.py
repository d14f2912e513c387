"""Brokers in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.clients.remoting_client import start_name_server
from tests.support.broker.crashed import start_crashed
from tests.support.broker.running_broker import running, start_broker
from tests.support.broker.tls_files import tls_files
from tests.support.broker.transactions import producer

__all__ = [
    "producer",
    "running",
    "start_broker",
    "start_crashed",
    "start_name_server",
    "tls_files",
]

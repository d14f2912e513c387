"""Brokers with remoting in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.remoting_client import remoting

__all__ = ["remoting"]

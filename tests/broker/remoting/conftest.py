"""Brokers with remoting, one of them with users, in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.remoting_client import remoting
from tests.support.broker.users import secured

__all__ = ["remoting", "secured"]

"""Brokers with users in the event loop of each test of this folder."""

from __future__ import annotations

from tests.support.broker.clients.users import secured

__all__ = ["secured"]

"""Clients of `apache.rocketmq.v2` for the tests of this folder."""

from __future__ import annotations

from tests.support.broker.clients.apache_client import apache
from tests.support.broker.clients.remoting_client import remoting

__all__ = ["apache", "remoting"]

"""Clients of `apache.rocketmq.v2` for the tests of this folder."""

from __future__ import annotations

from tests.support.broker.apache_client import apache

__all__ = ["apache"]

"""A broker with an HTTP port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.broker.running_broker import RunningBroker, StartBroker


@pytest.fixture
async def running_http(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    async with start_broker(http_port=0) as running:
        yield running

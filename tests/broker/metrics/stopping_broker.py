"""A broker that is asked to stop, and waits for a call that waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.support.broker.running_broker import RunningBroker, StartBroker, another_connection
from tests.support.store.disk_calls import LOG, holding

# A broker that stops notices it before this number of requests has been answered.
TRIES_MAX = 500


@asynccontextmanager
async def stopping(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningBroker]:
    """Yields a broker with an HTTP port that stops, and lets a call end, until the block's end."""
    async with AsyncExitStack() as stack:
        start = start_broker(FlushDiskType.SYNC_FLUSH, http_port=0, stop_grace_ms=60_000)
        running = await stack.enter_async_context(start)
        await running.create_topic("T")
        async with another_connection(running) as other:
            with holding(monkeypatch, "fdatasync", LOG) as gate:
                sent = asyncio.ensure_future(other.append("T", 0, b"a"))
                await gate.reached()
                stopped = asyncio.ensure_future(stack.aclose())
                yield running
            assert (await sent).status.code == 0
            await stopped

"""Time for the broker to notice something, without an event of it."""

from __future__ import annotations

import asyncio


async def turns(count: int) -> None:
    """Gives the broker time to notice a call that was cut off."""
    for _ in range(count):
        await asyncio.sleep(0.001)

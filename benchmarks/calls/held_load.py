"""The held calls of bench_held: a share of them, in its own process.

`python -m benchmarks.calls.held_load PROTOCOL ADDRESS FIRST COUNT CONNECTIONS`. Each call is
held again after its end. For each line of input the program writes a JSON list: the delays in ms of
the messages since the line before. A message's body is the time of its send; all processes of a
machine have one monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

from benchmarks.protocols.interface import Client
from benchmarks.protocols.table import SIDES

CALLS_A_TOPIC = 100
# Calls of one connection that begin together.
BURST, BURST_PAUSE_SECONDS = 10, 0.01


def place(number: int, queues: int) -> tuple[str, int]:
    """Returns the topic and the queue of a held call."""
    return f"held-{number // CALLS_A_TOPIC}", number % CALLS_A_TOPIC % queues


async def hold(client: Client, topic: str, queue_id: int, delays: list[float]) -> None:
    """Holds one call after the other until the program ends."""
    offset = 0
    while True:
        bodies = await client.hold(topic, queue_id, offset)
        now = time.perf_counter()
        offset += len(bodies)
        delays += [(now - float(body)) * 1000 for body in bodies]


async def run(protocol: str, address: str, first: int, count: int, connections: int) -> None:
    """Holds `count` calls until the input ends."""
    side = SIDES[protocol]
    delays = list[float]()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(side.connect(address)) for _ in range(connections)
        ]
        running = []
        for number in range(count):
            topic, queue_id = place(first + number, side.held_queues)
            work = hold(clients[number % connections], topic, queue_id, delays)
            running.append(asyncio.ensure_future(work))
            if number % (BURST * connections) == 0:
                await asyncio.sleep(BURST_PAUSE_SECONDS)
        asked = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        while True:
            await asyncio.wait([asked, *running], return_when=asyncio.FIRST_COMPLETED)
            for one in running:
                # A call that has ended raises its error here.
                assert not one.done() or one.result()
            if not asked.result():
                return
            asked = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
            sys.stdout.write(json.dumps(delays) + "\n")
            sys.stdout.flush()
            delays.clear()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))

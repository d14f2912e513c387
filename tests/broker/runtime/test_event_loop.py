"""The loop of a broker's process: gRPC's wake-ups are taken together."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.runtime import event_loop
from tests.support.time_limits import WAIT_SECONDS_MAX

WITH_GRPC = """
import asyncio, grpc
from rocketpy_broker.runtime import event_loop

async def server():
    grpc.aio.server()

made, real = [], event_loop._once_for_all
event_loop._once_for_all = lambda *given: made.append(given) or real(*given)
event_loop.run(server())
print(len(made))
"""


@pytest.mark.parametrize("count", [1, 2, 300])
def test_b09_wake_ups_that_have_come_are_taken_in_one_pass(count: int) -> None:
    calls: list[bytes] = []
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: calls.append(ours.recv(2)))
        for _ in range(2):
            theirs.send(bytes(count))
            for _ in range(3):
                await asyncio.sleep(0)
        loop.remove_reader(ours)

    with ours, theirs:
        event_loop.run(work())
    assert calls == [b"\0", b"\0"]


def test_b09_what_is_named_by_its_number_is_left_alone() -> None:
    calls: list[bytes] = []
    ours, theirs = socket.socketpair()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), lambda: calls.append(ours.recv(1)))
        theirs.send(bytes(3))
        for _ in range(6):
            await asyncio.sleep(0)
        loop.remove_reader(ours.fileno())

    with ours, theirs:
        event_loop.run(work())
    assert calls == [b"\0"] * 3


def test_b09_grpc_still_wakes_the_loop_by_such_a_socket() -> None:
    """Guards a speed-up only: without it a send costs a tenth more."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_GRPC],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.stdout.split() == ["1"]


def test_b09_tasks_that_are_left_are_cancelled_and_an_error_is_passed_on() -> None:
    left: list[asyncio.Future[None]] = []

    async def work() -> None:
        left.append(asyncio.ensure_future(asyncio.sleep(3600)))
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        event_loop.run(work())
    assert left[0].cancelled()


FIRST_CALL = """
import asyncio, sys
from rocketpy_broker.broker import Broker
from rocketpy_broker.config import BrokerConfig

async def broker():
    stopped, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = BrokerConfig(data=__import__("pathlib").Path(sys.argv[1]), port=0)
    serving = asyncio.ensure_future(Broker(config).serve_until(stopped, ready))
    await ready
    print("pandas" in sys.modules)
    stopped.set()
    await serving

asyncio.run(broker())
"""


def test_b09_no_call_waits_for_an_import(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.stdout == "True\n"


def test_b09_a_broker_process_works_without_pandas(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("T", 1)
        broker.send("T", [f"{number}" for number in range(100)], tags="a", keys=["key"])
        assert len(broker.messages("T")) == 100
        files = Path(f"/proc/{broker.pid}/maps").read_text()
    assert "/pyarrow/" in files
    assert "/pandas/" not in files

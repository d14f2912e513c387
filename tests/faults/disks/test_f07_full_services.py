"""A nearly full disk, in small steps, under every service that writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.embedded.process import LocalBrokerError
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.faults.disks.small_disk import mounted_disk
from tests.support.broker.clients.batch_writer import Job
from tests.support.broker.running_broker import RunningBroker

MIB = 1 << 20
DISK_BYTES = 48 * MIB
SEGMENT_BYTES = MIB
# Free bytes of the full disk; log segments, queues and tables need other sizes.
FREE_BYTES_MAX = 768 << 10
ROUNDS_QUICK = 8
# Each write of a table, of staging and of a queue meets the end of the disk.
ROUNDS_TORTURE = FREE_BYTES_MAX >> 12
# A store takes ever more of the disk.
ROUNDS_PER_STORE = 8
TOPICS = ("plain", "retried", "batched")
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yields a disk in memory that is soon full."""
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


class Use:
    """One use of each service, with its acknowledged and its unknown messages."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._number = 0
        self.acked: dict[str, list[bytes]] = defaultdict(list)
        self.unknown: dict[str, set[bytes]] = defaultdict(set)
        self.refusals: list[str] = []

    def run(self) -> None:
        """Uses every service once. Raises undeclared errors."""
        broker = self._broker
        self._number += 1
        number = self._number
        for _ in range(4):
            self._send("plain", lambda body: broker.send("plain", body), bytes(120_000))
        self._send("plain", lambda body: broker.send("plain", body, delay_level=1))
        due = timedelta(seconds=3)
        self._send("plain", lambda body: broker.send("plain", body, deliver_at=broker.now() + due))
        self._send("plain", self._send_and_commit)
        self._send("retried", lambda body: broker.send("retried", body))
        self._try(self._send_back)
        name = f"group{number % 8}"
        change = broker.update_group if name in broker.groups() else broker.create_group
        self._try(lambda: change(name, retry_max_times=number % 9))
        self._try(lambda: broker.create_topic(f"topic{number}", 2))
        asyncio.run(self._stage_and_commit(number))
        broker.advance_clock(6)

    def _try(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except LocalBrokerError as error:
            self.refusals.append(str(error))
            return False
        return True

    def _send(self, topic: str, send: Callable[[bytes], object], padding: bytes = b"") -> None:
        body = b"%d-%d" % (self._number, len(self.acked[topic]) + len(self.unknown[topic]))
        body += padding
        if self._try(lambda: send(body)):
            self.acked[topic].append(body)
        else:
            self.unknown[topic].add(body)

    def _send_and_commit(self, body: bytes) -> None:
        self._broker.commit(self._broker.send_transaction("plain", body, "producers"))

    def _send_back(self) -> None:
        for message in self._broker.pull("retried", "consumers"):
            self._broker.send_back(message, "consumers", delay_level=1)

    async def _stage_and_commit(self, number: int) -> None:
        bodies = [b"%d-%d" % (number, each) + bytes(3_000) for each in range(10)]
        outcome = None
        async with grpc.aio.insecure_channel(self._broker.endpoint) as channel:
            broker = SimpleNamespace(data=broker_pb2_grpc.BrokerStub(channel))
            job = Job(cast("RunningBroker", broker), number, topic="batched")
            try:
                await job.stage((0, bodies))
            except AssertionError as error:  # A refusal, in the words of its status.
                self.refusals.append(str(error))
            else:
                outcome = (await job.commit(wait_ms_max=1_000)).outcome
        if outcome == broker_pb2.COMMITTED:
            self.acked["batched"] += bodies
        else:
            self.unknown["batched"].update(bodies)

    def check(self) -> None:
        """Asserts that acknowledged messages are there once, and no unsent one is."""
        for topic in TOPICS:
            found = Counter(message.body for message in self._broker.messages(topic))
            acked, unknown = set(self.acked[topic]), self.unknown[topic]
            assert {body: found[body] for body in acked} == dict.fromkeys(acked, 1)
            assert set(found) <= acked | unknown
            assert all(found[body] <= 1 for body in unknown)


def fill(ballast: Path, left_bytes: int) -> None:
    """Leaves `left_bytes` of the disk, which the broker may use at the same time."""
    with ballast.open("wb") as file:
        while True:
            status = os.fstatvfs(file.fileno())
            taken = max(1, status.f_bavail * status.f_frsize - left_bytes)
            with contextlib.suppress(OSError):
                return os.posix_fallocate(file.fileno(), 0, taken)


@pytest.mark.parametrize("rounds", [ROUNDS_QUICK, pytest.param(ROUNDS_TORTURE, marks=torture)])
def test_f7_a_full_disk_under_every_service_costs_nothing_that_was_acknowledged(
    small_disk: Path, rounds: int
) -> None:
    refusals = list[str]()
    ballast, step = small_disk / "ballast", FREE_BYTES_MAX // rounds
    for first in range(0, rounds, ROUNDS_PER_STORE):
        broker = LocalBroker(
            small_disk / f"store{first}",
            commit_log_segment_bytes=SEGMENT_BYTES,
            message_delay_level="1s 5s",
        )
        with broker:
            for topic in TOPICS:
                broker.create_topic(topic, 1)
            use = Use(broker)
            for number in range(first, min(first + ROUNDS_PER_STORE, rounds)):
                fill(ballast, number * step)
                use.run()
                refusals += use.refusals
                ballast.unlink()
                use.refusals.clear()
                use.run()
                assert use.refusals == [], "there is room again"
                broker.advance_clock(10)
            broker.kill()
            broker.start()
            broker.advance_clock(10)
            use.check()
        shutil.rmtree(broker.data)
    assert any("No space left" in each for each in refusals)

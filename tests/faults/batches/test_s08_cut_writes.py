"""Kills within any write of a batch's roll-forward of joined blocks.

A thread's write ends after any record, within one, or leaves a hole. Then the store is released,
and the next start has to show each message once, in order. The start may be killed in the same way.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rocketpy_broker.services.batches.log import StagedTask
from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RecordBlock
from tests.faults.batches.batch_use import Desk
from tests.faults.images import image_of, put_image, read_bodies, workshop
from tests.support.store.disk_calls import LOG, DiskCall, before_call
from tests.support.store.messages import OTHER, QUEUE

ANOTHER = QueueKey(QUEUE.topic, 0)
QUEUES = (QUEUE, OTHER, ANOTHER)
TASKS = 12
BATCH, TOKEN = 1, 9
POINTS_QUICK = 8
POINTS_TORTURE = 500
torture = (pytest.mark.torture, pytest.mark.timeout(7200))
Point = tuple[int, int, tuple[int, int]]
Shown = dict[QueueKey, list[bytes]]


class Cut(BaseException):
    """A kill, which no code handles."""


@contextmanager
def cut_at(number: int, length: int, hole: tuple[int, int] = (0, 0)) -> Iterator[list[RecordBlock]]:
    """Cuts the thread's write of that number after `length` bytes, less a hole."""
    seen: list[RecordBlock] = []
    write = os.pwrite

    def cut(call: DiskCall) -> None:
        block = call.records
        if threading.current_thread() is threading.main_thread() or block is None:
            return
        seen.append(block)
        if len(seen) - 1 == number:
            assert isinstance(call.file, int)
            data = bytearray(block.data)
            data[slice(*hole)] = bytes(hole[1] - hole[0])
            write(call.file, data[:length], call.arguments[1])
            raise Cut

    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, "pwrite", LOG, cut)
        yield seen


def points_of(seen: list[RecordBlock]) -> Iterator[Point]:
    """Yields the places to cut writes: around each record, and with a hole in each."""
    for number, block in enumerate(seen):
        total = len(block.data)
        yield number, 0, (0, 0)
        for begin, size in zip(block.positions.tolist(), block.sizes.tolist(), strict=True):
            yield number, begin + size, (0, 0)
            yield number, begin + 30, (0, 0)
            yield number, total, (begin + size // 2, begin + size // 2 + 10)
            yield number, total, (begin + 20, begin + 28)


def blocks_of(task: int, dice: random.Random) -> Iterator[tuple[QueueKey, list[bytes]]]:
    """Yields blocks of few messages; joined, they fill about a segment."""
    for block in range(dice.randint(1, 3)):
        size = dice.choice((5, 5, 200, 900))
        names = [b"%d-%d-%d-" % (task, block, row) for row in range(dice.choice((1, 1, 2, 4)))]
        yield dice.choice((*QUEUES, QUEUE)), [name.ljust(size, b"y") for name in names]


def shown_by(desk: Desk) -> Shown:
    return {queue: read_bodies(desk.store, queue) for queue in QUEUES}


def staged(desk: Desk, dice: random.Random) -> tuple[list[StagedTask], Shown]:
    """Returns a batch of many small tasks, and the messages that show after its commit."""
    wanted = shown_by(desk)
    work = [list(blocks_of(task, dice)) for task in range(TASKS)]
    for queue, bodies in itertools.chain.from_iterable(work):
        wanted[queue] += bodies
    tasks = [desk.stage(BATCH, TOKEN, task, *blocks) for task, blocks in enumerate(work)]
    return tasks, wanted


def opened(folder: Path, flush: FlushDiskType) -> Desk:
    desk = Desk(folder, flush)
    desk.open()
    return desk


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("count", [POINTS_QUICK, pytest.param(POINTS_TORTURE, marks=torture)])
def test_s08_a_kill_in_a_write_of_joined_blocks_shows_each_message_once(
    flush: FlushDiskType, count: int
) -> None:
    dice = random.Random(count)
    with workshop() as folder:
        desk = opened(folder, flush)
        desk.write(0, 5)
        tasks, wanted = staged(desk, dice)
        desk.stop()
        image = image_of(folder)
        desk = opened(folder, flush)
        with cut_at(-1, 0) as seen:
            desk.commit(BATCH, TOKEN, *tasks)
        assert shown_by(desk) == wanted
        assert max(map(len, seen)) > 1
        desk.crash()
        points = list(points_of(seen))
        for point in dice.sample(points, min(count, len(points))):
            put_image(image, folder)
            desk = opened(folder, flush)
            with cut_at(*point), pytest.raises(Cut):
                desk.commit(BATCH, TOKEN, *tasks)
            desk.crash()
            if dice.random() < 0.5:
                desk = Desk(folder, flush)
                with cut_at(dice.choice((0, 1)), dice.choice((0, 77, 150))), suppress(Cut):
                    desk.open()
                desk.crash()
            for _ in range(2):
                desk = opened(folder, flush)
                assert shown_by(desk) == wanted, point
                assert desk.query(BATCH, TOKEN).outcome is Outcome.COMMITTED
                desk.crash()

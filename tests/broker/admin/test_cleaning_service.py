"""Cleaning with pauses: each removal first checks what the broker did in the pause."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.admin.cleaning_service import PAUSE_MS, CleaningService
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.store.cleaner import HOUR_MS, CleanPolicy
from tests.support.store.messages import flush_log, numbered, put_all
from tests.support.store.stores import SEGMENT_BYTES, store_in

EXPIRED = 4


class Desk:
    """A store with four expired segments at its start, and the service that cleans it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = store_in(folder, self.clock)
        self.store.open()
        put_all(self.store, numbered(300))
        self.store.dispatch()
        flush_log(self.store)
        self.segments = [segment.path for segment in self.store._log.files.segments]
        assert len(self.segments) > EXPIRED + 1
        self._age()
        self.files = StoreFiles(self.store, self.clock, 1_000)
        self.cleaning = CleaningService(self.store, self.files, self.clock, BrokerConfig(folder))

    def _age(self) -> None:
        self.store.expired_segment_count(manual=True)
        self.clock.advance(CleanPolicy().reserved_ms + HOUR_MS)
        for number, path in enumerate(self.segments):
            seconds = 0 if number < EXPIRED else self.clock.now_ms() / 1000
            os.utime(path, (seconds, seconds))

    @property
    def removed(self) -> int:
        return sum(not path.exists() for path in self.segments)

    async def clean(self, in_pause: Callable[[int], None], callers: int = 1) -> list[int]:
        """Cleans; calls `in_pause` with the count of removed segments in each pause."""
        passes = asyncio.gather(*(self.cleaning.clean(manual=True) for _ in range(callers)))
        while not passes.done():
            await take_slot()
            in_pause(self.removed)
            self.clock.advance(PAUSE_MS)
        return await passes


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yields a desk; closes its files and store at the end."""
    made = Desk(tmp_path)
    yield made
    made.files.close()
    made.store.close()


async def test_s10_all_that_has_expired_goes_in_one_pass(desk: Desk) -> None:
    assert await desk.clean(lambda _: None) == [EXPIRED]
    assert desk.removed == EXPIRED


async def test_s10_what_is_needed_since_the_last_pause_stays(desk: Desk) -> None:
    def need_the_third(removed: int) -> None:
        if removed == 1:
            desk.store.needed_from = 2 * SEGMENT_BYTES

    assert await desk.clean(need_the_third) == [2]
    assert desk.removed == 2


async def test_s10_what_has_been_written_since_the_last_pause_stays(desk: Desk) -> None:
    def write_to_the_second(removed: int) -> None:
        if removed == 1:
            os.utime(desk.segments[1], (desk.clock.now_ms() / 1000,) * 2)

    assert await desk.clean(write_to_the_second) == [1]


async def test_s10_two_cleanings_at_once_remove_what_has_expired_and_no_more(desk: Desk) -> None:
    assert sum(await desk.clean(lambda _: None, callers=2)) == EXPIRED
    assert desk.removed == EXPIRED

"""Saving tables in a thread, so that the event loop goes on meanwhile.

A table hands out what is to be saved as a `SavePlan`: a snapshot that is cheap to take, and is
encoded and written elsewhere. One save of a table runs at a time, and who wants one meanwhile
shares the next, which takes the table as it is then. So no older content replaces a newer one, and
changes that come together cost a save or two, not one each. A save goes on when its waiters hang
up.

Holds no state on disk. A crash in a save leaves the file as `ConfigFile` or `Journal` say; one
between two tables leaves one older than the other, which all readers of these files expect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from rocketpy_broker.services.context import SavedTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SavePlan:
    """One save: `run` blocks and raises OSError; `saved` belongs to the loop, and comes after it.

    After a `run` that has failed nothing is called, and the next plan holds its changes again.
    """

    run: Callable[[], None]
    saved: Callable[[], None]


class Table(Protocol):
    """What lives in memory and has a file."""

    def plan_save(self) -> SavePlan | None:
        """Returns a save of what is there now; None where the file is up to date.

        Another is planned only when the one before has ended.
        """


class Saver:
    """Saves one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._waiting: list[asyncio.Future[None]] = []
        self._is_saving = False

    @property
    def name(self) -> str:
        """The table's, for the log."""
        return type(self._table).__name__

    async def save(self) -> None:
        """Returns when all that had changed before this call is on disk. Raises OSError."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if not self._is_saving:
            self._start()
        await waiter

    def _start(self) -> None:
        sharing, self._waiting = self._waiting, []
        plan = self._table.plan_save()
        if plan is None:
            _answer(sharing, None)
            return
        running = asyncio.get_running_loop().run_in_executor(self._thread, plan.run)
        self._is_saving = True
        running.add_done_callback(lambda running: self._ended(plan, sharing, running.exception()))

    def _ended(
        self, plan: SavePlan, sharing: list[asyncio.Future[None]], error: BaseException | None
    ) -> None:
        self._is_saving = False
        if error is None:
            plan.saved()
        _answer(sharing, error)
        if self._waiting:
            self._start()

    def close(self) -> None:
        """Waits for a save that is under way, and end the thread."""
        self._thread.shutdown(wait=True)


def _answer(waiters: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def save_now(table: Table) -> None:
    """Saves in this thread, as before there is a loop. Raises OSError."""
    plan = table.plan_save()
    if plan is not None:
        plan.run()
        plan.saved()


async def save_all(tables: Iterable[SavedTable]) -> None:
    """Saves each of them. Raises the first OSError, when all have been tried."""
    errors: list[OSError] = []
    for table in tables:
        try:
            await table.save()
        except OSError as error:
            logger.warning("%s could not be saved: %s", table.name, error)
            errors.append(error)
    if errors:
        raise errors[0]

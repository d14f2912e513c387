"""Saves of tables in a thread, without blocking the event loop.

A table returns a `SavePlan`: a snapshot that is cheap to take; the thread encodes and writes it.
One save of a table runs at a time. Callers that request a save meanwhile share the next one, which
takes the table as it is then. So older content never replaces newer content, and concurrent changes
cost a save or two, not one each. A save continues when its waiters are cancelled.

A crash in a save leaves the file as described in `ConfigFile` or `LedgerFile`. A crash between the
saves of two tables leaves one older than the other; all readers of these files expect that.
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
    """One save: `run` blocks and raises OSError; then `saved` is called on the event loop.

    After a failed `run`, `saved` is not called, and the next plan contains its changes again.
    """

    run: Callable[[], None]
    saved: Callable[[], None]


class Table(Protocol):
    """A table in memory with a file."""

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the present table; None if the file is up to date.

        It is called again only after this save has ended.
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
        """The table's name in the log."""
        return type(self._table).__name__

    async def save(self) -> None:
        """Waits until all changes before this call are on disk. Raises OSError."""
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
        try:
            if error is None:
                plan.saved()
        finally:
            _answer(sharing, error)
            if self._waiting:
                self._start()

    def close(self) -> None:
        """Waits for a running save and ends the thread."""
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
    """Saves in the calling thread, for use without an event loop. Raises OSError."""
    plan = table.plan_save()
    if plan is not None:
        plan.run()
        plan.saved()


async def save_all(tables: Iterable[SavedTable]) -> None:
    """Tries to save each table; raises the first OSError at the end."""
    errors: list[OSError] = []
    for table in tables:
        try:
            await table.save()
        except OSError as error:
            logger.warning("%s could not be saved: %s", table.name, error)
            errors.append(error)
    if errors:
        raise errors[0]

"""Owners of asyncio tasks: each task ends with its owner.

No other module starts asyncio tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


async def run_shielded(work: Awaitable[T]) -> T:
    """Runs `work` to completion; delivers a cancellation afterwards."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])


async def run_until(over: asyncio.Future[None], work: Coroutine[object, object, T]) -> T:
    """Returns the result of `work`. Cancels it when `over` is done, and raises TimeoutError."""
    task = asyncio.get_running_loop().create_task(work)
    either: list[asyncio.Future[Any]] = [task, over]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        await _cancelled(task)


async def _cancelled(task: asyncio.Task[T]) -> None:
    """Cancels a task and waits for its end; delivers the caller's cancellation afterwards."""
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


class Prompt(Coroutine[Any, Any, T_co]):
    """A coroutine that mostly ends without a wait: it can begin, and so end, without a task.

    Up to its first wait it must not need the current task.
    """

    def __init__(self, work: Coroutine[Any, Any, T_co]) -> None:
        self._work = work
        self._first: object = None
        self._has_first = self.has_begun = False

    def begin(self) -> T_co | Prompt[T_co]:
        """Runs the coroutine up to its first wait. Returns its result, or itself for a task."""
        self.has_begun = True
        try:
            self._first = self._work.send(None)
        except StopIteration as end:
            result: T_co = end.value
            return result
        self._has_first = True
        return self

    def send(self, value: Any) -> Any:
        """Runs the coroutine up to its next wait. The first call returns that of `begin`."""
        if self._has_first:
            self._has_first, first, self._first = False, self._first, None
            return first
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raises an error in the coroutine."""
        self._has_first, self._first = False, None
        try:
            return self._work.throw(*error)
        finally:
            # The error that leaves refers to this frame.
            del error

    def close(self) -> None:
        """Ends the coroutine."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T_co]:
        """Runs the coroutine, which has not begun, in the current task."""
        return self._work.__await__()


class TaskScope:
    """An owner of tasks for the time of an `async with` block.

    A failed task cancels the block; its error leaves the block. Tasks that still run when the
    block ends are cancelled and awaited, so none outlives its owner.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._error: BaseException | None = None
        self._owner: asyncio.Task[object] | None = None

    async def __aenter__(self) -> TaskScope:
        self._owner = asyncio.current_task()
        return self

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Runs `work` beside the block."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def join(self) -> None:
        """Waits until all tasks have ended. Call it in the block."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def begin(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Runs `work` beside the block; its error goes to the caller and not to the block."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[object, object, T]) -> T:
        """Runs `work` as `begin` does; returns its result or raises its error.

        A cancelled caller does not cancel `work`.
        """
        return await asyncio.shield(self.begin(work))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None or self._error is not None:
            return
        self._error = task.exception()
        if self._owner is not None:
            self._owner.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owner = None
        for task in list(self._tasks):
            task.cancel()
        await self.join()
        if self._error is not None and (error is None or isinstance(error, asyncio.CancelledError)):
            raise self._error

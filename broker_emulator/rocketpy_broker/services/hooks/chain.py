"""Calls every hook; what one raises harms nobody. State: how often each has failed."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from rocketpy_broker.hooks import (
    ENTRY_POINT_GROUP,
    ConsumeContext,
    ConsumeOutcome,
    Hook,
    HookAbortError,
    SendContext,
    SendOutcome,
)

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# The first failures of a hook are told with their traces, the others only each so many.
FAILURES_TOLD, FAILURES_PER_LINE = 3, 10_000


class HookChain:
    """Hooks in their order; empty for most brokers."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self.failures: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before_send(self, context: SendContext) -> None:
        """Raises HookAbortError; hooks behind that one are not called."""
        for hook in self._hooks:
            _called(partial(hook.before_send, context), partial(self._failed, hook))

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        """A put was tried."""
        self._all(lambda hook: hook.after_send(context, outcome))

    def before_consume(self, context: ConsumeContext) -> None:
        """A pull is to be answered."""
        self._all(lambda hook: hook.before_consume(context))

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        """A pull is answered."""
        self._all(lambda hook: hook.after_consume(context, outcome))

    def _all(self, call: Callable[[Hook], None]) -> None:
        for hook in self._hooks:
            # Only what has not begun can be refused.
            with contextlib.suppress(HookAbortError):
                _called(partial(call, hook), partial(self._failed, hook))

    def _failed(self, hook: Hook, error: Exception) -> None:
        self.failures[hook.hook_name] += 1
        count = self.failures[hook.hook_name]
        if count <= FAILURES_TOLD or count % FAILURES_PER_LINE == 0:
            logger.error("hook %r failed, %d times by now", hook.hook_name, count, exc_info=error)


def installed_hooks() -> list[Hook]:
    """Returns the hooks of installed packages; one that cannot be made is left out, with an error."""
    hooks: list[Hook] = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        hook = _called(partial(_made, entry), partial(_left_out, entry.name))
        if isinstance(hook, Hook):
            hooks.append(hook)
        elif hook is not None:
            logger.error("hook %r is no rocketpy_broker.hooks.Hook, and is left out", entry.name)
    return hooks


def _made(entry: EntryPoint) -> object:
    return entry.load()()


def _left_out(name: str, error: Exception) -> None:
    logger.error("hook %r cannot be loaded, and is left out", name, exc_info=error)


def _called(call: Callable[[], Result], failed: Callable[[Exception], None]) -> Result | None:
    """What a package's code returns, which may raise anything. Raises HookAbortError."""
    try:
        return call()
    except HookAbortError:
        raise
    except Exception as error:
        failed(error)
        return None

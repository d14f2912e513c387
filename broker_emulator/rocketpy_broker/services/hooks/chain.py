"""Chain of the installed hooks, guarded against their errors.

State: failures per hook, in memory only.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import metadata
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
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# A hook's first FAILURES_LOGGED failures are logged, later only every FAILURES_PER_LINE-th.
FAILURES_LOGGED, FAILURES_PER_LINE = 3, 10_000


class HookChain:
    """The hooks of one broker in calling order."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self.failures: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before_send(self, context: SendContext) -> None:
        """Calls the hooks before a send. Raises HookAbortError; later hooks are not called."""
        for hook in self._hooks:
            _called(partial(hook.before_send, context), partial(self._failed, hook))

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        """Calls the hooks after a send, stored or not."""
        self._all(lambda hook: hook.after_send(context, outcome))

    def before_consume(self, context: ConsumeContext) -> None:
        """Calls the hooks before the answer to a pull."""
        self._all(lambda hook: hook.before_consume(context))

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        """Calls the hooks after an answer to a pull."""
        self._all(lambda hook: hook.after_consume(context, outcome))

    def _all(self, call: Callable[[Hook], None]) -> None:
        for hook in self._hooks:
            # Only `before_send` can refuse.
            with contextlib.suppress(HookAbortError):
                _called(partial(call, hook), partial(self._failed, hook))

    def _failed(self, hook: Hook, error: Exception) -> None:
        self.failures[hook.hook_name] += 1
        count = self.failures[hook.hook_name]
        if count <= FAILURES_LOGGED or count % FAILURES_PER_LINE == 0:
            times = counted(count, "time")
            logger.error("hook %r failed, %s so far", hook.hook_name, times, exc_info=error)


@cache
def entry_points(group: str) -> metadata.EntryPoints:
    """Returns the entry points; only the first call searches, for 5 ms of a broker's start."""
    return metadata.entry_points(group=group)


def installed_hooks() -> list[Hook]:
    """Returns the hooks of installed packages; logs an error for each unusable one."""
    hooks: list[Hook] = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        hook = _called(partial(_made, entry), partial(_left_out, entry.name))
        if isinstance(hook, Hook):
            hooks.append(hook)
        elif hook is not None:
            logger.error("hook %r is no rocketpy_broker.hooks.Hook, and is skipped", entry.name)
    return hooks


def _made(entry: metadata.EntryPoint) -> object:
    return entry.load()()


def _left_out(name: str, error: Exception) -> None:
    logger.error("hook %r cannot be loaded, and is skipped", name, exc_info=error)


def _called(call: Callable[[], Result], failed: Callable[[Exception], None]) -> Result | None:
    """Returns the call's result, or None after an error. Raises HookAbortError."""
    try:
        return call()
    except HookAbortError:
        raise
    except Exception as error:
        failed(error)
        return None

"""A plugin that ends the process of a test beyond its limit, and first reports where it hangs.

`pytest-timeout` raises an exception in the main thread, once. A call that no signal interrupts, a
task that outlives its cancellation or a fixture that waits during teardown then never ends. The
operator that stops such a run never learns which test hung. xdist reports a process that ends as a
failed test.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Any

import pytest

# Time beyond its limit in which a test may report and end what it has started.
GRACE_S = 120


class HangsEnd:
    """A plugin; it writes the stacks of all threads to the file descriptor `errors`."""

    def __init__(self, errors: int, grace_s: float = GRACE_S) -> None:
        self.errors = errors
        self.grace_s = grace_s

    def _end_after(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.errors)

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> None:
        """Starts the timer of a test with a limit."""
        self._end_after(settings.timeout + self.grace_s)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        """Restarts the timer of a failed test, which pytest and pytest-timeout no longer watch."""
        if isinstance(node, pytest.Item):
            self._end_after(self.grace_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Runs a test; the time between two, as in other tests' fixtures, is not watched."""
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugin, for `-p` with this module and for the tests' own conftest."""
    if not config.pluginmanager.has_plugin("hangs-end"):
        grace_s = float(os.environ.get("ROCKETPY_HANGS_GRACE_S", GRACE_S))
        # pytest redirects what a running test prints.
        config.pluginmanager.register(HangsEnd(os.dup(2), grace_s), "hangs-end")

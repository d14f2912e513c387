"""A test that goes on past its limit ends its process, which first says where it hangs.

`pytest-timeout` raises an exception in the main thread, once. A call that no signal interrupts, a
task that outlives its cancelling or a fixture that waits while it is torn down goes on for ever
then, and whoever ends the run never learns which test it was. A process that ends is a failed test
in a run that is shared out to several.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Any

import pytest

# What a test may take beyond its limit, to report and to end what it has started.
GRACE_S = 120


class HangsEnd:
    """A plugin; `errors` is where stacks of all threads are written, a descriptor."""

    def __init__(self, errors: int, grace_s: float = GRACE_S) -> None:
        self.errors = errors
        self.grace_s = grace_s

    def _end_after(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.errors)

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> None:
        """A test begins that has a limit."""
        self._end_after(settings.timeout + self.grace_s)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        """A test has failed: pytest and pytest-timeout watch it no longer."""
        if isinstance(node, pytest.Item):
            self._end_after(self.grace_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Runs a test; what lasts between two, as other tests' fixtures, is not watched."""
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """Used by `-p tests.hangs`, and by the tests' own conftest."""
    if not config.pluginmanager.has_plugin("hangs-end"):
        grace_s = float(os.environ.get("ROCKETPY_HANGS_GRACE_S", GRACE_S))
        # What a test prints goes elsewhere while it runs.
        config.pluginmanager.register(HangsEnd(os.dup(2), grace_s), "hangs-end")

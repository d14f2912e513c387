"""A plugin that fails a run with skipped tests if CI=true: a skipped test proves nothing.

Without CI=true the summary names the skipped tests and the reasons.
"""

from __future__ import annotations

import os

import pytest


class SkipsFail:
    """A plugin; in a distributed run, the controlling process has it, which gets all reports."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def _take(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.skipped.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the report of a test that has run or was skipped."""
        self._take(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Takes the report of a file that was collected or skipped."""
        self._take(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails the run."""
        if self.skipped and is_ci() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Writes the skipped tests and the reasons."""
        if self.skipped:
            fails = ", and with CI=true that fails the run" if is_ci() else ""
            text = f"{len(self.skipped)} tests were skipped{fails}:"
            terminalreporter.section("what was not tested")
            for line in [text, *sorted(set(self.skipped))]:
                terminalreporter.write_line(line)


def is_ci() -> bool:
    """True if no reader would see which tests were skipped."""
    return os.environ.get("CI", "").lower() == "true"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugin, for `-p` with this module and for the tests' own conftest."""
    if not hasattr(config, "workerinput") and not config.pluginmanager.has_plugin("skips-fail"):
        config.pluginmanager.register(SkipsFail(), "skips-fail")

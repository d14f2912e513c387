"""A test that is skipped holds no promise: where the environment has CI=true, a run fails by it.

Everywhere else the summary names what was skipped, and why.
"""

from __future__ import annotations

import os

import pytest


class SkipsFail:
    """A plugin; in a run that is shared out to processes, the one that hears of all."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def _take(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.skipped.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has run, or not."""
        self._take(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file has been looked through, or not."""
        self._take(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the run fail."""
        if self.skipped and is_ci() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says so."""
        if self.skipped:
            fails = ", and with CI=true that fails the run" if is_ci() else ""
            text = f"{len(self.skipped)} tests were skipped{fails}:"
            terminalreporter.section("what was not tested")
            for line in [text, *sorted(set(self.skipped))]:
                terminalreporter.write_line(line)


def is_ci() -> bool:
    """True if nobody is there to read what was skipped."""
    return os.environ.get("CI", "").lower() == "true"


def pytest_configure(config: pytest.Config) -> None:
    """Used by `-p tests.skips`, and by the tests' own conftest."""
    if not hasattr(config, "workerinput") and not config.pluginmanager.has_plugin("skips-fail"):
        config.pluginmanager.register(SkipsFail(), "skips-fail")

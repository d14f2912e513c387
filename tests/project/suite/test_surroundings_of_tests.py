"""Runs of these tests with unusual arguments and environments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[3]
COMMAND = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-n0",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
]


def run(*arguments: str, **names: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_ADDOPTS": "", **names}
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_folder_that_arguments_come_back_to_keeps_its_fixtures() -> None:
    folders = ["tests/broker/topics", "tests/project/test_tidy.py", "tests/broker/flush"]
    ended = run("--setup-plan", *folders)
    assert (ended.returncode, "not found" in ended.stdout) == (0, False), ended.stdout[-2000:]


def test_tests_reach_their_brokers_where_the_environment_names_a_proxy() -> None:
    # A reserved port: no program listens on it.
    proxy = "http://127.0.0.1:1"
    test = "tests/broker/pull/test_append_and_pull.py"
    ended = run(test, "-k", "pulled_as_it_was_sent", http_proxy=proxy, no_grpc_proxy="")
    assert ended.returncode == 0, ended.stdout[-2000:]

"""Commands and tests in the documents, run as a newcomer pastes them.

They run in an environment with nothing but our wheel and its dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.reference import leaves
from tests.support.documents import Block, pasted_tests, runnable
from tests.support.installation import SYSTEM_PATH, Environment

PAGES: dict[str, list[Block]] = defaultdict(list)
for _block in runnable("sh"):
    PAGES[_block.name.rpartition(":")[0]].append(_block)
# They run until they are stopped; every test here uses the broker.
NEVER_ENDING = {"broker start", "nameserver"}
# docs/replication.md shows these two; tests/broker/replication runs them.
OF_TWO_BROKERS = {"broker promote", "store align"}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_document_run_as_they_stand(
    page: str, tmp_path: Path, environment: Environment
) -> None:
    with LocalBroker(tmp_path / "store") as stopped:
        stopped.create_topic("orders")
        stopped.send("orders", "kept")
    with LocalBroker(http_port=0) as broker:
        told = {
            **os.environ,
            "PATH": f"{environment('broker', 'security')}:{SYSTEM_PATH}",
            "ROCKETPY_ENDPOINT": broker.endpoint,
        }
        for block in PAGES[page]:
            done = subprocess.run(
                ["sh", "-eu", "-c", block.text],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env=told,
            )
            assert done.returncode == 0, f"{block.name}: {done.stdout}{done.stderr}"


def commands() -> list[str]:
    """Returns every command, with its group."""
    return [" ".join(command.words[1:]) for command in leaves()]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_shown_and_run(command: str) -> None:
    run = [line for block in runnable("sh") for line in block.text.splitlines()]
    shown = [line for line in run if line.startswith(f"rocketpy {command}")]
    assert shown or command in NEVER_ENDING | OF_TWO_BROKERS, (
        f"show `rocketpy {command}` in docs/reference/commands.md"
    )


@pytest.mark.parametrize("block", pasted_tests(), ids=lambda block: block.name)
def test_the_tests_of_a_document_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_pasted.py").write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert f"{block.text.count('def test_')} passed" in done.stdout, done.stdout + done.stderr

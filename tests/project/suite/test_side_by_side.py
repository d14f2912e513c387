"""Processes of `make test`: tests that share a costly fixture run in one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc

TOP = Path(__file__).parents[3]
PROGRAM = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def spark() -> None:
    pass

@pytest.mark.xdist_group("costly")
@pytest.mark.parametrize("number", range(8))
def test_group(number: int) -> None:
    Path(f"group-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(8))
def test_session(spark: None, number: int) -> None:
    Path(f"session-{os.getpid()}").touch()

LONG = pytest.param("long", marks=pytest.mark.slow)

@pytest.mark.parametrize("word", ["quick", LONG] * 8, ids=range(10, 26))
def test_order(word: str) -> None:
    with Path(f"order-{os.getpid()}").open("a") as order:
        order.write(word + "\\n")
"""
OURS = "from tests.conftest import pytest_collection_modifyitems\n"


def test_tests_of_a_group_run_in_one_process_and_long_ones_first(tmp_path: Path) -> None:
    """Asserts one process for a group: more processes would silently create more Spark sessions.

    The same holds for images. A long test that starts last would run alone.
    """
    (tmp_path / "test_group.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(OURS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--numprocesses=2", "--dist=loadgroup"]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "32 passed" in done.stdout
    assert len(list(tmp_path.glob("group-*"))) == 1
    assert len(list(tmp_path.glob("session-*"))) == 1
    orders = [path.read_text("utf-8").split() for path in tmp_path.glob("order-*")]
    assert sum(map(len, orders)) == 16
    assert all(order == sorted(order) for order in orders)


def test_programs_start_beside_busy_calls() -> None:
    """Forks as PySpark does for the JVM: one of four such children died beside gRPC's threads."""
    ended = threading.Event()

    def call_nobody() -> None:
        while not ended.is_set():
            with grpc.insecure_channel("127.0.0.1:1") as channel:
                call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                    "/nobody.Nobody/Answer"
                )
                try:
                    call(b"", timeout=0.05)
                except grpc.RpcError:
                    continue

    def ignore_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    calls = threading.Thread(target=call_nobody)
    calls.start()
    try:
        codes = [
            # Like PySpark.
            subprocess.Popen(["true"], preexec_fn=ignore_interrupts).wait()  # noqa: PLW1509
            for _ in range(40)
        ]
    finally:
        ended.set()
        calls.join()
    assert codes == [0] * len(codes)

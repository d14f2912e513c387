"""A temporary store, which is removed with its broker; no other store ever is."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.embedded.temporary_store import TemporaryStore, TemporaryStoreError
from tests.support.broker.shell import ended
from tests.support.time_limits import WAIT_SECONDS_MAX

PROGRAM = """
import sys
from rocketpy_broker import LocalBroker

broker = LocalBroker().start()
broker.create_topic("T")
broker.send("T", "a")
print(broker.pid, broker.data, flush=True)
sys.stdin.read()
"""
WITHOUT_A_BROKER = """
import sys
from rocketpy_broker.embedded import local_broker
from rocketpy_broker.embedded.process import BrokerProcess

def never(command, log_path, times):
    print(0, log_path.parent, flush=True)
    sys.stdin.read()

local_broker.BrokerProcess = never
local_broker.LocalBroker().start()
"""


class Running:
    """A program that holds a LocalBroker, and its output about it."""

    def __init__(self, program: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        assert self.process.stdout is not None
        pid, data = self.process.stdout.readline().split()
        self.pid, self.data = int(pid), Path(data)

    def end(self, number: signal.Signals) -> None:
        """Sends the program a signal and waits until its broker has ended, too."""
        handle = os.pidfd_open(self.pid) if self.pid else None
        self.process.send_signal(number)
        self.process.communicate(timeout=WAIT_SECONDS_MAX)
        if handle is not None:
            ended, _, _ = select.select([handle], [], [], WAIT_SECONDS_MAX)
            os.close(handle)
            assert ended


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_store_of_a_program_that_is_killed_goes_with_its_broker(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "rocketpy-other").mkdir()
    running = Running(PROGRAM, tmp_path)
    assert (running.data / "commitlog").exists()
    running.end(number)
    assert [path.name for path in tmp_path.iterdir()] == ["rocketpy-other"]


def test_another_directory_in_its_place_stays(tmp_path: Path) -> None:
    running = Running(PROGRAM, tmp_path)
    moved = tmp_path / "moved"
    running.data.rename(moved)
    # On a busy machine the broker gets there first, with a folder for its next index file.
    no_log = shutil.ignore_patterns("commitlog")
    shutil.copytree(moved, running.data, ignore=no_log, dirs_exist_ok=True)
    running.end(signal.SIGKILL)
    assert running.data.exists()
    assert moved.exists()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    running = Running(PROGRAM, tmp_path)
    moved = tmp_path / "moved"
    running.data.rename(moved)
    # As above.
    while not running.data.is_symlink():
        shutil.rmtree(running.data, ignore_errors=True)
        with suppress(FileExistsError):
            running.data.symlink_to(moved)
    running.end(signal.SIGKILL)
    assert (moved / "commitlog").exists()


def test_a_program_that_is_killed_before_its_broker_starts_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "rocketpy-other").mkdir()
    running = Running(WITHOUT_A_BROKER, tmp_path)
    running.end(signal.SIGKILL)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"rocketpy-other", running.data.name}
    assert [path.name for path in running.data.iterdir()] == ["temporary-store"]


def test_the_command_refuses_to_call_a_directory_temporary_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious", encoding="utf-8")
    command = ["broker", "--port", "0", "--data", str(tmp_path), "--stop-at-eof", "--temporary"]
    for token in ("", "0" * 32):
        done = ended(*command, token, stdin=subprocess.DEVNULL)
        assert done.returncode == 1
        assert (
            "is not the temporary store of this broker; the broker did not remove it" in done.stderr
        )
        assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_directory_is_removed_with_its_token_only(tmp_path: Path) -> None:
    store = TemporaryStore.make()
    with pytest.raises(TemporaryStoreError):
        TemporaryStore(store.path, "another")
    (store.path / "temporary-store").write_text("another", encoding="ascii")
    store.remove()
    assert store.path.exists()
    (store.path / "temporary-store").write_text(store.token, encoding="ascii")
    store.remove()
    assert not store.path.exists()
    store.remove()


@pytest.mark.usefixtures("started_brokers")
def test_a_temporary_store_survives_restarts_and_goes_at_the_end() -> None:
    with LocalBroker() as broker:
        data = broker.data
        broker.create_topic("T")
        broker.send("T", "a")
        broker.restart()
        broker.kill()
        broker.start()
        assert [message.text for message in broker.messages("T")] == ["a"]
        assert broker.data == data
    assert not data.exists()
    with pytest.raises(LocalBrokerError, match="no store yet"):
        broker.log_text()


def test_a_start_that_fails_leaves_no_temporary_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(LocalBrokerError, match="did not start"):
        LocalBroker(port=1, commit_log_segment_bytes=5).start()
    assert list(tmp_path.iterdir()) == []


FORKED = """
import os, sys
from rocketpy_broker import LocalBroker

with LocalBroker() as broker:
    broker.create_topic("T")
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    broker.send("T", "a")
    broker.restart()
    print(len(broker.messages("T")), broker.data.exists())
"""
FORKED_AND_KILLED = """
import multiprocessing, os, signal, sys, time
from rocketpy_broker import LocalBroker

broker = LocalBroker().start()
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
child.start()
print(broker.pid, broker.data, child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_leaves_broker_and_store_to_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.stdout == "1 True\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_does_not_keep_the_broker_alive(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED_AND_KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # Its child holds the other ends of the pipes, so they do not report its death.
    with process.stdin, process.stdout:
        broker, data, child = process.stdout.readline().split()
        handle = os.pidfd_open(int(broker))
        process.kill()
        process.wait()
    try:
        assert select.select([handle], [], [], WAIT_SECONDS_MAX)[0], "the broker lives on"
    finally:
        os.kill(int(child), signal.SIGKILL)
        os.close(handle)
    assert not Path(data).exists()


def test_a_start_that_fails_keeps_what_an_earlier_one_stored(tmp_path: Path) -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        broker.send("T", "a")
        port = int(broker.endpoint.rpartition(":")[2])
        broker.stop()
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(LocalBrokerError, match="cannot listen"),
        ):
            broker.start()
        broker.start()
        assert [message.text for message in broker.messages("T")] == ["a"]


def test_an_interrupt_at_the_terminal_reaches_the_program_alone() -> None:
    with LocalBroker() as broker:
        assert os.getsid(broker.pid) == broker.pid

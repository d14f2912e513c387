"""Paths of a LocalBroker: resolved once, whatever becomes of directories afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.config import BrokerConfig


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Returns two directories; the program is in the first."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    return first, second


@pytest.mark.usefixtures("started_brokers")
def test_a_relative_store_stays_the_same_after_a_change_of_directory(
    folders: tuple[Path, Path],
) -> None:
    first, second = folders
    (first / "a").mkdir()
    with LocalBroker("./a/../store") as broker:
        broker.create_topic("T")
        broker.send("T", "a")
        os.chdir(second)
        assert broker.data.samefile(first / "store")
        broker.kill()
        broker.start()
        assert [message.text for message in broker.messages("T")] == ["a"]
        broker.restart()
        assert [message.text for message in broker.messages("T")] == ["a"]
        assert broker.log_text()
        pid = broker.pid
    assert not Path(f"/proc/{pid}").exists()
    assert list(second.iterdir()) == []


@pytest.mark.usefixtures("started_brokers")
def test_a_store_lies_where_its_broker_was_made(folders: tuple[Path, Path]) -> None:
    first, second = folders
    broker = LocalBroker(Path("store"))
    os.chdir(second)
    with broker:
        broker.create_topic("T")
    assert (first / "store" / "commitlog").exists()
    assert list(second.iterdir()) == []


def test_a_broker_whose_directory_is_gone_can_be_stopped(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "store").start()
    pid = broker.pid
    shutil.rmtree(tmp_path / "store")
    broker.stop()
    assert not Path(f"/proc/{pid}").exists()
    broker.start()
    assert broker.topics() == []
    pid = broker.pid
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    broker.restart()
    assert not Path(f"/proc/{pid}").exists()
    shutil.rmtree(tmp_path / "store")
    pid = broker.pid
    broker._process._process.kill()  # type: ignore[union-attr]
    broker._process._process.wait()  # type: ignore[union-attr]
    with pytest.raises(
        LocalBrokerError, match="ended with exit code -9; the end of its log: its log"
    ):
        broker.topics()
    with broker:
        assert broker.topics() == []


@pytest.mark.usefixtures("started_brokers")
def test_a_stop_that_is_interrupted_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LocalBroker(tmp_path / "store").start()
    pid = broker.pid
    wait = subprocess.Popen.wait

    def interrupted(process: subprocess.Popen[str], timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait(process)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.stop()
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_whose_own_directory_is_gone_is_served(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; from rocketpy_broker import LocalBroker, LocalBrokerError\n"
        "os.rmdir(os.getcwd())\n"
        "with LocalBroker() as broker:\n"
        "    broker.create_topic('T'); broker.restart(); print(broker.topics())\n"
        "with LocalBroker(sys.argv[1]) as broker: print(broker.topics())\n"
        "try: LocalBroker('store')\n"
        "except LocalBrokerError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("['T']", "[]")
    assert third.startswith("the store's directory is relative: store. ")


@pytest.mark.usefixtures("started_brokers")
def test_a_temporary_directory_that_is_relative_is_found_again(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = folders
    monkeypatch.setattr("tempfile.tempdir", ".")
    with LocalBroker() as broker:
        data = broker.data
        os.chdir(second)
        broker.create_topic("T")
        broker.restart()
        assert broker.topics() == ["T"]
    assert data.is_absolute()
    assert list(first.iterdir()) == list(second.iterdir()) == []


def test_the_configuration_of_a_broker_holds_a_whole_path(folders: tuple[Path, Path]) -> None:
    first, _ = folders
    assert BrokerConfig(Path("store")).data == first / "store"

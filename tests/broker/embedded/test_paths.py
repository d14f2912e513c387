"""Paths of a LocalBroker: resolved once, whatever becomes of directories afterwards."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError, LocalTls, connect
from rocketpy_broker.config import BrokerConfig
from tests.support.certificates import Authority


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


@pytest.mark.usefixtures("started_brokers")
def test_files_of_tls_stay_the_same_after_a_change_of_directory(
    folders: tuple[Path, Path],
) -> None:
    first, second = folders
    authority = Authority(first)
    pair = authority.issue("server")
    names = [Path(each.name) for each in (pair.certificate, pair.key, authority.path)]
    tls = LocalTls(*names)
    with LocalBroker(tls=tls) as broker:
        client = connect(broker.tls_endpoint, tls=True, tls_ca_file=names[2])
        os.chdir(second)
        broker.restart()
        assert Path(broker.tls_ca_file) == authority.path
        with client, pickle.loads(pickle.dumps(client)) as copy:
            assert copy.topics() == client.topics() == []


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
    assert third.startswith("data is relative: store. The working directory cannot be")


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


def test_modules_in_the_program_s_directory_replace_no_module_of_the_broker(
    tmp_path: Path,
) -> None:
    (tmp_path / "secrets.py").write_text("raise RuntimeError('of the project')", "utf-8")
    (tmp_path / "program").mkdir()
    program = tmp_path / "program" / "program.py"
    program.write_text(
        "import os\n"
        "from rocketpy_broker import LocalBroker\n"
        "with LocalBroker() as broker:\n"
        "    broker.create_topic('T')\n"
        "    if os.fork() == 0:\n"
        "        broker.send('T', 'a'); os._exit(0)\n"
        "    os.wait()\n"
        "    print([message.text for message in broker.messages('T')])\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['a']\n", done.stderr


def test_a_broker_is_found_where_its_program_has_found_the_package(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path = sys.argv[1:]\n"
        "from rocketpy_broker import LocalBroker\n"
        "with LocalBroker() as broker: print(broker.topics())\n"
    )
    # This interpreter has no such package, so it is on the program's own module path alone.
    interpreter = sys._base_executable  # type: ignore[attr-defined]
    done = subprocess.run(
        [interpreter, "-c", program, *sys.path],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr

"""Configuration of every test: hypothesis, and the marks that a folder implies."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.broker.fork_server import ForkServer
from tests.support.installation import Environment, build_wheel, install
from tests.support.plugins import hangs, skips
from tests.support.spark.home import spark_home

# No time limit for one example: it would fail correct tests on a busy machine.
settings.register_profile("rocketpy", deadline=None, print_blob=True)
settings.load_profile("rocketpy")

# All processes that tests start inherit this. Their JVMs live for seconds: the second compiler, the
# verification of Spark's classes and the collections of a metaspace that grows never pay off.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("SPARK_HOME", str(spark_home()))
# Otherwise gRPC's fork handlers may kill children of tests with busy calls, such as Spark's JVM.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Channels of tests connect to brokers on this machine, also if the environment names a proxy.
os.environ["no_grpc_proxy"] = "127.0.0.1,localhost,::1"  # noqa: SIM112 (as gRPC reads it)
# Tests write their files to memory where it is large: a flush of a disk costs more than a test.
MEMORY_FOLDER, MEMORY_BYTES_MIN = Path("/dev/shm"), 8 << 30
if MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_BYTES_MIN:
    os.environ.setdefault("TMPDIR", str(MEMORY_FOLDER))
    tempfile.tempdir = None  # pytest has read the variable already.
# Other files on the machine's disk must not affect a test.
os.environ["ROCKETPY_DISK_FULL_RATIO"] = "1.0"
DISK_USED = 0.5
NAME_LENGTH_MAX = 100
# An import of jsonschema would build 38 grammars of URIs, in 3 s, for a check that no test uses.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

TOP = Path(__file__).parent.parent
# Fixtures that are created once a process.
COSTLY = {"spark", "wheel"}
SPARK_FOLDER = Path(__file__).parent / "spark"
PROJECT_FOLDER = Path(__file__).parent / "project"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugins that fail a CI run with skipped tests and that end hanging tests."""
    skips.pytest_configure(config)
    hangs.pytest_configure(config)
    # pytest 9.1 loses the fixtures of a folder if it returns to the folder later.
    config.args.sort(key=_path_of)
    # A shell starts a command with `&` with SIGINT ignored, and its children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # `nohup` does so with SIGHUP. A handler, which no child inherits, ignores it, too.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def _path_of(argument: str) -> tuple[str, ...]:
    """Returns the parts of the path of an argument such as `tests/project/test_tidy.py::test_x`."""
    return Path(argument.partition("::")[0]).resolve().parts


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Marks the tests in `tests/spark`, so that `-m 'not spark'` is the quick round.

    `make docs` runs the tests of the project itself, and all tests that install the wheel.

    Tests that share one Spark session, or the wheel and its environments, stay in one of the
    processes of `make test`: xdist reads the groups in this hook, too, and has to find them.
    """
    for item in items:
        used = COSTLY.intersection(getattr(item, "fixturenames", ()))
        for group in used:
            item.add_marker(pytest.mark.xdist_group(group))
        if "wheel" in used or PROJECT_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.docs)
        if SPARK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
    yield
    if hasattr(config, "workerinput"):
        # After the shuffle: the other processes would wait for a long test that starts last.
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Freezes existing objects: each garbage collection of thousands of tests would visit them."""
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keeps a test's name on one line: a long value is named by its length."""
    if isinstance(val, (str, bytes)) and len(repr(val)) > NAME_LENGTH_MAX:
        return f"{argname} of {len(val)}"
    return None


@pytest.fixture(autouse=True)
def disk_half_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes the disk usage for stores in the test's process; child processes read a variable."""
    monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", lambda _: DISK_USED)


@pytest.fixture(scope="session", autouse=True)
def forked_programs() -> Iterator[None]:
    """Forks the processes of LocalBrokers and of `shell.started`.

    With `started_brokers` LocalBrokers start as users' do.
    """
    with closing(ForkServer()) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketpy_broker.embedded.process.Popen", server.start)
        patch.setattr("tests.support.broker.shell.Popen", server.start)
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel from the work tree."""
    return build_wheel(TOP, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Creates environments with only the wheel and its dependencies, one for each set of extras."""

    @cache
    def make(*extras: str) -> Path:
        folder = tmp_path_factory.mktemp("-".join(["environment", *extras]))
        return install(wheel, folder, *extras)

    return make

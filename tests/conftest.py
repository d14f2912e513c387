"""What holds for every test: how hypothesis works here, and the marks that a folder implies."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests import hangs, jvm, skips
from tests.installation import Environment, build_wheel, install

# No time limit for one example: on a busy machine it would fail a test that is right.
settings.register_profile("rocketpy", deadline=None, print_blob=True)
settings.load_profile("rocketpy")

# All processes that tests start inherit this.
os.environ.setdefault("JDK_JAVA_OPTIONS", jvm.options())
# Else gRPC's handlers of forks may kill what a test starts beside busy calls, such as Spark's JVM.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Channels of tests lead to brokers of this machine, also where the environment names a proxy.
os.environ["no_grpc_proxy"] = "127.0.0.1,localhost,::1"  # noqa: SIM112 (as gRPC reads it)
# What else lies on the machine's disk decides no test.
os.environ["ROCKETPY_DISK_FULL_RATIO"] = "1.0"
DISK_USED = 0.5
NAME_LENGTH_MAX = 100

TOP = Path(__file__).parent.parent
# Fixtures that a process makes once.
COSTLY = {"spark", "wheel"}
SPARK_FOLDER = Path(__file__).parent / "spark"


def pytest_configure(config: pytest.Config) -> None:
    """Let what is skipped in CI fail the run, and what hangs end."""
    skips.pytest_configure(config)
    hangs.pytest_configure(config)
    # pytest 9.1 loses the fixtures of a folder that it leaves and comes back to.
    config.args.sort(key=_path_of)
    # A shell that starts a command with `&` makes it ignore SIGINT, and so its children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _path_of(argument: str) -> tuple[str, ...]:
    """Returns the parts of the path of an argument such as `tests/test_tidy.py::test_x`."""
    return Path(argument.partition("::")[0]).resolve().parts


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Marks what lies in `tests/spark`, so that `-m 'not spark'` is the quick round.

    Tests that share one Spark session, or the wheel and what it is installed into, stay in one of
    the processes that `make test` shares them out to: xdist looks at the groups in this hook, too,
    and has to find them.
    """
    for item in items:
        for group in COSTLY.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(group))
        if SPARK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
    yield
    if hasattr(config, "workerinput"):
        # Behind their random order: a long test that begins last lets the other processes wait.
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What is there now stays: else each garbage collection of thousands of tests visits it."""
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name of a test is a line: a long value is told by its length."""
    if isinstance(val, (str, bytes)) and len(repr(val)) > NAME_LENGTH_MAX:
        return f"{argname} of {len(val)}"
    return None


@pytest.fixture(autouse=True)
def disk_half_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the environment does for processes: stores of the test's own process read this."""
    monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", lambda _: DISK_USED)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the work tree."""
    return build_wheel(TOP, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Environments with nothing but the wheel and what it asks for, by extras; made once each."""

    @cache
    def make(*extras: str) -> Path:
        folder = tmp_path_factory.mktemp("-".join(["environment", *extras]))
        return install(wheel, folder, *extras)

    return make

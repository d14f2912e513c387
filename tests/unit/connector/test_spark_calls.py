"""The boundary to Spark: declared errors lose their frames, imports are no garbage."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.sink.writers import RocketpyStreamWriter, RocketpyWriter
from pyspark_rocketpy.source.readers import (
    RocketpyBatchReader,
    RocketpyPushDownReader,
    RocketpyStreamReader,
)
from pyspark_rocketpy.source.refused import RefusedStreamReader
from pyspark_rocketpy.spark_calls import HIDE_TRACEBACK, called_by_spark


def deep(error: Exception) -> None:
    """Raises the error with a cause and some frames."""
    raise error from KeyError("cause")


@called_by_spark
class Called:
    """An object that Spark would call."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_closed = False

    def plan(self, a: int, *, b: int = 2) -> int:
        """Fails at once, for numbers below 1."""
        if a < 1:
            deep(self.error)
        return a + b

    def read(self) -> Iterator[int]:
        """Fails after its first item."""
        try:
            yield 1
            deep(self.error)
        finally:
            self.is_closed = True


@pytest.fixture
def spark_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes this process look as if PySpark had started it."""
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    yield
    gc.unfreeze()


def frames(error: BaseException) -> list[str]:
    """Returns the functions that a traceback would show."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_results_and_signatures_stay() -> None:
    called = Called(OptionError("x"))
    assert called.plan(1) == 3
    assert list(inspect.signature(called.plan).parameters) == ["a", "b"]
    assert inspect.getdoc(called.plan) == "Fails at once, for numbers below 1."


def test_a_declared_error_loses_its_frames_and_its_cause() -> None:
    called = Called(OptionError("x"))
    with pytest.raises(OptionError) as caught:
        called.plan(0)
    assert "deep" not in frames(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(OptionError) as caught:
        list(called.read())
    assert "deep" not in frames(caught.value)


def test_another_error_keeps_its_frames_and_its_cause() -> None:
    called = Called(ValueError("x"))
    with pytest.raises(ValueError, match="x") as caught:
        called.plan(0)
    assert frames(caught.value)[-1] == "deep"
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ValueError, match="x") as caught:
        list(called.read())
    assert frames(caught.value)[-1] == "deep"


def test_a_generator_that_is_left_early_is_closed() -> None:
    called = Called(OptionError("x"))
    items = called.read()
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert called.is_closed


@pytest.mark.usefixtures("spark_worker")
def test_a_worker_of_spark_is_told_to_hide_tracebacks_of_declared_errors_only() -> None:
    with pytest.raises(ValueError, match="x"):
        Called(ValueError("x")).plan(0)
    assert os.environ[HIDE_TRACEBACK] == ""
    with pytest.raises(OptionError):
        Called(OptionError("x")).plan(0)
    assert os.environ[HIDE_TRACEBACK] == "1"


def test_any_other_process_is_left_as_it_is() -> None:
    with pytest.raises(OptionError):
        Called(OptionError("x")).plan(0)
    assert HIDE_TRACEBACK not in os.environ


WORKER = """
import gc, sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from pyspark_rocketpy.spark_calls import function_called_by_spark

call = function_called_by_spark(gc.get_freeze_count)
counts = [call()]
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
counts.append(call())
later = [[] for _ in range(1000)]
counts.append(call())
sys.modules.update((f"module{number}", ModuleType("module")) for number in range(len(sys.modules)))
counts.append(call())
print(*counts)
"""


def test_a_worker_exempts_imports_from_collections_again_after_many_more() -> None:
    words = subprocess.check_output([sys.executable, "-c", WORKER], text=True).split()
    before, first, second, after_imports = map(int, words)
    assert before == 0
    assert first > 1000, "all objects of the imports"
    assert second <= first
    assert after_imports >= first + 1000


@pytest.mark.parametrize(
    "kind",
    [
        DefaultSource,
        RocketpyBatchReader,
        RocketpyPushDownReader,
        RocketpyStreamReader,
        RefusedStreamReader,
        RocketpyWriter,
        RocketpyStreamWriter,
    ],
)
def test_every_method_that_spark_calls_hides_tracebacks(kind: type) -> None:
    entries = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    functions = {name: value for name, value in entries.items() if inspect.isfunction(value)}
    assert functions
    assert [name for name, value in functions.items() if not hasattr(value, "__wrapped__")] == []


def test_a_refused_reader_says_so_whatever_is_asked_first() -> None:
    reader = RefusedStreamReader(OptionError("no"))
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, None),  # type: ignore[arg-type]
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(OptionError, match="ROCKETPY_OPTION: no"):
            ask()
    reader.stop()

"""Calls from Spark: errors without tracebacks, workers without long garbage collections.

A Python worker of Spark that meets an exception sends its text with a traceback, and ends. Spark's
switch `spark.sql.execution.pyspark.udf.hideTraceback.enabled` leaves the traceback out. The switch
reaches the worker as an environment variable. A worker that is about to report a declared error
sets this variable for the rest of its life. All other errors are program errors, and keep their
traceback. A log at level debug has the omitted frames.

`pyspark.daemon` collects garbage after each call of a worker, and scans all imported objects for 25
to 30 ms. A micro-batch that is read and written has four such calls. So a call first exempts the
imports before it.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from inspect import isfunction
from typing import Any, TypeVar

from pyspark_rocketpy.errors import RocketpyError

logger = logging.getLogger(__name__)
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
# Growth of the number of modules, since the last exemption, that is needed for the next one.
GROWTH_MIN = 1.1

Kind = TypeVar("Kind", bound=type)


class _Imports:
    """The imports of this process that garbage collection leaves out."""

    def __init__(self) -> None:
        self._count = 0

    def exempt(self) -> None:
        """Exempts all objects of the process, after many imports.

        Garbage among them stays. A program may import without end, so the next exemption waits for
        a tenth more modules.
        """
        if len(sys.modules) > GROWTH_MIN * self._count:
            self._count = len(sys.modules)
            gc.freeze()


_imports = _Imports()


def called_by_spark(kind: Kind) -> Kind:
    """Wraps the public methods of a class for Spark."""
    for name, value in list(vars(kind).items()):
        if isfunction(value) and not name.startswith("_"):
            setattr(kind, name, function_called_by_spark(value))
    return kind


def function_called_by_spark(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function for Spark: declared errors have no frames, imports are exempted."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_spark_worker():
            _imports.exempt()
        try:
            result = function(*args, **kwargs)
        except RocketpyError as error:
            raise _alone(error) from None
        return _items_without_frames(result) if isinstance(result, Generator) else result

    return call


def _items_without_frames(items: Iterator[Any]) -> Iterator[Any]:
    """Yields the same items; a generator raises its errors while it runs."""
    try:
        yield from items
    except RocketpyError as error:
        raise _alone(error) from None


def _alone(error: RocketpyError) -> RocketpyError:
    """Returns the error without its frames, and sets the variable in a worker of Spark."""
    logger.debug("an error is reported without these frames", exc_info=error)
    if _is_spark_worker():
        os.environ[HIDE_TRACEBACK] = "1"
    return error.with_traceback(None)


def _is_spark_worker() -> bool:
    """True if PySpark started this process, rather than a user's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")

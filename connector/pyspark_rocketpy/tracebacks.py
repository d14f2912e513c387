"""Declared errors in Spark: their text alone, without a traceback.

A Python worker of Spark that meets an exception sends its text with a traceback, and ends. Spark's
switch `spark.sql.execution.pyspark.udf.hideTraceback.enabled` leaves the traceback out. The switch
reaches the worker as an environment variable. A worker that is about to report a declared error
sets this variable for the rest of its life. All other errors are program errors, and keep their
traceback. A log at level debug has the omitted frames.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from inspect import isfunction
from typing import Any, TypeVar

from pyspark_rocketpy.errors import RocketpyError

logger = logging.getLogger(__name__)
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

Kind = TypeVar("Kind", bound=type)


def hide_tracebacks(kind: Kind) -> Kind:
    """Wraps the public methods of a class for Spark: their declared errors have no frames."""
    for name, value in list(vars(kind).items()):
        if isfunction(value) and not name.startswith("_"):
            setattr(kind, name, _without_frames(value))
    return kind


def hide_function_tracebacks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that Spark runs in a task: its declared errors have no frames."""
    return _without_frames(function)


def _without_frames(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
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
    """Returns the error without its frames, also if the worker's switch is unknown."""
    logger.debug("an error is reported without these frames", exc_info=error)
    if _is_spark_worker():
        os.environ[HIDE_TRACEBACK] = "1"
    return error.with_traceback(None)


def _is_spark_worker() -> bool:
    """True if PySpark started this process, rather than a user's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")

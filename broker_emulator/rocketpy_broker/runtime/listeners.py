"""Listeners of an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Functions that an event calls, in the order in which they were added."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def add(self, function: Callable[P, object]) -> None:
        """Registers `function` for each later event."""
        self._functions.append(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls every listener. Raises what a listener raises."""
        for function in self._functions:
            function(*args, **kwargs)

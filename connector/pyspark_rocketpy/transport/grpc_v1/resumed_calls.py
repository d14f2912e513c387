"""Calls that answer for the first entries of their request, until they have answered for all.

So a broker that is slow gets on with each call. Holds no state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from rocketpy_proto.call_limits import ENTRIES_MAX

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Progress(Generic[_Entry]):
    """What one call has done: `count` entries, and the one behind them but for `rest`."""

    count: int
    rest: _Entry | None = None


Ask = Callable[[int, Sequence[_Entry]], Progress[_Entry]]


def ask_for_all(entries: Sequence[_Entry], ask: Ask[_Entry], done: str) -> None:
    """Calls `ask` with the number of the first entry that is left, and those that are left.

    It gets as many as one call takes, and checks that the answer is about some of them. Raises what
    it raises; a ConnectionFailedError says how many entries are done, in the words of `done`.
    Raises BrokerError where the rest of an entry is all of it.
    """
    left, number = list(entries), 0
    while number < len(left):
        part = left[number : number + ENTRIES_MAX]
        try:
            progress = ask(number, part)
        except ConnectionFailedError as error:
            raise ConnectionFailedError(
                f"{error}; {number} of {len(left)} {done}", is_lasting=error.is_lasting
            ) from error
        if progress == Progress(0, part[0]):
            raise BrokerError(f"the broker answers nothing; {number} of {len(left)} {done}")
        number += progress.count
        if progress.rest is not None:
            left[number] = progress.rest

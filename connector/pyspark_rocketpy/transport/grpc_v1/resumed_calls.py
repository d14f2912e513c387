"""Calls repeated until they have answered for all entries.

Each call answers for the first entries of its request. So a slow broker makes progress with each
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from rocketpy_proto.call_limits import ENTRIES_MAX

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class CallProgress(Generic[_Entry]):
    """The result of one call: `count` entries done, and the next one done but for `rest`."""

    count: int
    rest: _Entry | None = None


Ask = Callable[[int, Sequence[_Entry]], CallProgress[_Entry]]


def ask_for_all(entries: Sequence[_Entry], ask: Ask[_Entry], done: str) -> None:
    """Calls `ask` with the number of the first entry left and the entries left, until none is left.

    `ask` gets at most as many entries as one call takes. It checks that the answer is about some of
    them. Raises the errors of `ask`; a ConnectionFailedError also says how many entries are done,
    in the words of `done`. Raises BrokerError for an answer without any progress.
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
        if progress == CallProgress(0, part[0]):
            raise BrokerError(
                f"the broker's answer makes no progress; {number} of {len(left)} {done}"
            )
        number += progress.count
        if progress.rest is not None:
            left[number] = progress.rest

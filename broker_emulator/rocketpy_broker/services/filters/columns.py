"""Values of an expression's parts in a block: strings, numbers, truth values.

The value of a literal has one row for all records. State: the numbers found in a property's
strings, kept while the block is evaluated.
Source: docs/design/broker_behaviour.md section 3.3.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.services.filters.expressions import Number, NumberType
from rocketpy_broker.services.filters.numbers import Numbers, numbers_of

# Results of a condition in a row; they index the tables in `evaluation`.
FALSE, TRUE, NULL, ERROR = range(4)
Truths: TypeAlias = NDArray[np.uint8]


class Strings:
    """The strings of a property; null where a message has no such property."""

    def __init__(self, strings: pa.StringArray) -> None:
        self.array = strings
        self._numbers: dict[NumberType, Numbers] = {}

    @classmethod
    def of_literal(cls, text: str) -> Strings:
        """Returns one string for all rows."""
        return cls(pa.array([text], pa.string()))

    @cached_property
    def is_null(self) -> NDArray[np.bool_]:
        """True for each row without a string."""
        mask: NDArray[np.bool_] = self.array.is_null().to_numpy(zero_copy_only=False)
        return mask

    def numbers(self, kind: NumberType) -> Numbers:
        """Returns the strings as numbers of a type."""
        found = self._numbers.get(kind)
        if found is None:
            found = self._numbers[kind] = numbers_of(self.array, kind)
        return found


Value: TypeAlias = Strings | Number | Truths


def truths(value: int) -> Truths:
    """Returns one truth for all rows."""
    return np.array([value], np.uint8)


def select(where: NDArray[np.bool_], then: Truths | int, otherwise: Truths | int) -> Truths:
    """Returns `then` in rows where `where` is True, `otherwise` in other rows."""
    chosen: Truths = np.where(where, _typed(then), _typed(otherwise))
    return chosen


def _typed(value: Truths | int) -> Truths | np.uint8:
    return np.uint8(value) if isinstance(value, int) else value


def states(value: Value) -> Truths:
    """Returns NULL or ERROR for rows that are so, TRUE for rows with a value."""
    if isinstance(value, Number):
        return truths(TRUE)
    if isinstance(value, Strings):
        return select(value.is_null, NULL, TRUE)
    return select(value < NULL, TRUE, value)

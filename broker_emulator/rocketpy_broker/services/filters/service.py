"""Filters of pulls, made of their expressions, which are read once. Rows C03, C04.

A filter of type TAG is the tags codes that a queue's units have; one of type SQL92 looks into the
records. What came of the last expressions is kept in memory, errors as well, up to a number.
Source: spec/broker_behaviour.md sections 2.3 and 3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import SubscriptionParseError
from rocketpy_broker.services.filters.columns import TRUE, Strings
from rocketpy_broker.services.filters.evaluation import condition
from rocketpy_broker.services.filters.expressions import Expression, Property, parts_of
from rocketpy_broker.services.filters.parsing import CHARACTERS_MAX, ExpressionError, parse
from rocketpy_broker.services.filters.tags import codes_of
from rocketpy_proto.record import RecordBlock, property_columns

TAG, SQL92 = "TAG", "SQL92"
KEPT_MAX = 100
# An operation takes a fraction of a microsecond a record, and some ten of them for any number.
OPERATIONS_MAX = 30_000


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """A compiled expression. `records_max` of them take a few milliseconds, whatever it is."""

    expression: Expression
    properties: tuple[str, ...]
    records_max: int

    def matches(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Which records the expression is TRUE for; an error is none."""
        columns = property_columns(block, self.properties)
        strings = {name: Strings(column) for name, column in columns.items()}
        found = condition(self.expression, strings) == TRUE
        matching: NDArray[np.bool_] = np.broadcast_to(found, len(block))
        return matching


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a pull wants: messages with one of the codes, or what an expression matches; or all."""

    tags_codes: NDArray[np.int64] | None = None
    sql92: Sql92Filter | None = None


class FilterService:
    """Knows the last expressions."""

    def __init__(self) -> None:
        # The filter of an expression, or what is wrong with it.
        self._kept: OrderedDict[str, Sql92Filter | str] = OrderedDict()

    def filter_of(
        self, expression_type: str, expression: str, tags_codes: Sequence[int] = ()
    ) -> MessageFilter:
        """The filter that a request names. Raises SubscriptionParseError."""
        if tags_codes and (expression or expression_type not in {"", TAG}):
            raise SubscriptionParseError("tags codes and an expression are two filters; send one")
        if expression_type == SQL92:
            return MessageFilter(sql92=self._sql92(expression))
        if expression_type not in {"", TAG}:
            reason = f"the type of the expression is {expression_type[:64]!r}"
            raise SubscriptionParseError(f"{reason}, accepted are {TAG} and {SQL92}")
        codes = tags_codes or codes_of(expression)
        return MessageFilter(np.array(codes, np.int64) if codes else None)

    def _sql92(self, text: str) -> Sql92Filter:
        found = self._kept.get(text)
        if found is None:
            found = _compiled(text)
            if len(text) <= CHARACTERS_MAX:
                self._keep(text, found)
        else:
            self._kept.move_to_end(text)
        if isinstance(found, str):
            raise SubscriptionParseError(f"{SQL92}: {found}")
        return found

    def _keep(self, text: str, found: Sql92Filter | str) -> None:
        self._kept[text] = found
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)


def _compiled(text: str) -> Sql92Filter | str:
    try:
        expression = parse(text)
    except ExpressionError as error:
        return str(error)
    parts = list(parts_of(expression))
    names = {part.name: None for part in parts if isinstance(part, Property)}
    return Sql92Filter(expression, tuple(names), max(OPERATIONS_MAX // len(parts), 1))

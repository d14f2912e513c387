"""Filters of pulls, made of their expressions, which are read once.

A filter of type TAG is the tags codes that a queue's units have; one of type SQL92 looks into the
records. What came of the last expressions is kept in memory, errors as well, up to a number.
Source: docs/design/broker_behaviour.md sections 2.3 and 3.
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
from rocketpy_broker.services.filters.parser import CHARACTERS_MAX, ExpressionError, parse, prepare
from rocketpy_broker.services.filters.tags import codes_of
from rocketpy_proto.record import RecordBlock, property_columns

TAG, SQL92 = "TAG", "SQL92"
KEPT_MAX = 100
# An operation takes up to a microsecond a record, a nanosecond a byte of a property, and some ten
# microseconds for any number of them.
RECORD_OPERATIONS_MAX = 10_000
BYTE_OPERATIONS_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """A compiled expression.

    It takes a few milliseconds for up to `records_max` records with up to `bytes_max` bytes.
    """

    expression: Expression
    properties: tuple[str, ...]
    records_max: int
    bytes_max: int

    def matches(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Which records the expression is TRUE for; an error is none."""
        columns = property_columns(block, self.properties)
        strings = {name: Strings(column) for name, column in columns.items()}
        found = condition(self.expression, strings) == TRUE
        matching: NDArray[np.bool_] = np.broadcast_to(found, len(block))
        return matching


@dataclass(frozen=True, slots=True)
class FilterText:
    """The filter of a request as it came: an expression and its type, or tags codes."""

    expression_type: str = ""
    expression: str = ""
    tags_codes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a pull wants: messages with one of the codes, or what an expression matches; or all."""

    tags_codes: NDArray[np.int64] | None = None
    sql92: Sql92Filter | None = None


class FilterService:
    """Knows the last expressions."""

    def __init__(self) -> None:
        prepare()
        # The filter of an expression, or what is wrong with it.
        self._kept: OrderedDict[str, Sql92Filter | str] = OrderedDict()

    def filter_of(self, text: FilterText) -> MessageFilter:
        """Returns the filter that a request names. Raises SubscriptionParseError."""
        kind = text.expression_type or TAG
        if text.tags_codes and (text.expression or kind != TAG):
            raise SubscriptionParseError("tags codes and an expression are two filters; send one")
        if kind == SQL92:
            return MessageFilter(sql92=self._sql92(text.expression))
        if kind != TAG:
            reason = f"the type of the expression is {kind[:64]!r}"
            raise SubscriptionParseError(f"{reason}, accepted are {TAG} and {SQL92}")
        codes = text.tags_codes or codes_of(text.expression)
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
    return Sql92Filter(
        expression,
        tuple(names),
        RECORD_OPERATIONS_MAX // len(parts),
        BYTE_OPERATIONS_MAX // len(parts),
    )

"""The service that compiles filters of pulls.

A filter of type TAG compares the tags codes in a queue's units. A filter of type SQL92 evaluates
properties of the records. State in memory: the results of the last KEPT_MAX SQL92 expressions,
errors included.
Source: docs/design/broker_behaviour.md sections 2.3 and 3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import SubscriptionParseError
from rocketpy_broker.services.filters.columns import TRUE, Strings
from rocketpy_broker.services.filters.evaluation import condition
from rocketpy_broker.services.filters.expressions import Expression, Property, parts_of
from rocketpy_broker.services.filters.parser import CHARACTERS_MAX, ExpressionError, parse, prepare
from rocketpy_broker.services.filters.tags import codes_of, has_tag
from rocketpy_proto.model import SQL92, TAG
from rocketpy_proto.record import RecordBlock, property_columns

KEPT_MAX = 100
# Limits of one evaluation: operations times records, and operations times bytes of records.
# An operation takes about 10 us. To these it adds up to 1 us per record, and 1 ns per byte of a
# property.
RECORD_OPERATIONS_MAX = 10_000
BYTE_OPERATIONS_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """A compiled expression.

    Its evaluation takes a few milliseconds for `records_max` records with `bytes_max` bytes.
    """

    expression: Expression
    properties: tuple[str, ...]
    records_max: int
    bytes_max: int

    def matches(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Returns True for each record where the expression is TRUE; ERROR counts as False."""
        columns = property_columns(block, self.properties)
        strings = {name: Strings(column) for name, column in columns.items()}
        found = condition(self.expression, strings) == TRUE
        matching: NDArray[np.bool_] = np.broadcast_to(found, len(block))
        return matching


class FilterText(NamedTuple):
    """The filter of a request: an expression and its type, or tags codes."""

    expression_type: str = ""
    expression: str = ""
    tags_codes: Sequence[int] = ()

    def has_tag(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Returns a mask of the records with a wanted tag; all if the filter has no tags.

        A read compares only the tags codes, and different tags may have the same code.
        """
        is_tags = self.expression_type in {"", TAG}
        return has_tag(self.expression if is_tags else "", block)


class MessageFilter(NamedTuple):
    """The compiled filter of a pull: tags codes, an expression, or neither for all messages."""

    tags_codes: NDArray[np.int64] | None = None
    sql92: Sql92Filter | None = None


class FilterService:
    """The compiler of filters, with a cache of the last expressions."""

    def __init__(self) -> None:
        prepare()
        # The filter of an expression, or the text of its error.
        self._kept: OrderedDict[str, Sql92Filter | str] = OrderedDict()

    def filter_of(self, text: FilterText) -> MessageFilter:
        """Returns the filter of a request. Raises SubscriptionParseError."""
        kind = text.expression_type or TAG
        if text.tags_codes and (text.expression or kind != TAG):
            raise SubscriptionParseError(
                "the request has tags codes and an expression; send one of them"
            )
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

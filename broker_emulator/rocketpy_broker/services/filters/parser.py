"""The parser of SQL92 expressions.

The parser refuses the expressions that RocketMQ's compiler refuses (section 3.4), except `0.0`.
Text that RocketMQ ignores at the end (3.5) is an error. So is a boolean compared with a string on
its right, which fails in RocketMQ for every message. CHARACTERS_MAX, DEPTH_MAX and TERMS_MAX limit
the time of parsing and evaluation.
Source: docs/design/broker_behaviour.md sections 3.1 to 3.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_letters, digits
from typing import cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.visitors import v_args

from rocketpy_broker.services.filters.expressions import (
    CONDITIONS,
    INT64_MAX,
    AllOf,
    AnyOf,
    Condition,
    Equal,
    Expression,
    Negation,
    Not,
    Number,
    NumberType,
    OneOf,
    Operator,
    Ordered,
    Property,
    Search,
    Searched,
    Text,
    Truth,
)
from rocketpy_broker.services.filters.grammar import GRAMMAR
from rocketpy_broker.services.filters.numbers import compare

CHARACTERS_MAX = 4096
DEPTH_MAX = 64
# Literals and properties; the list of an IN does not count.
TERMS_MAX = 128
# Characters of an expression that an error shows before and after its place.
_SHOWN_CHARACTERS = 24
_HINTS = {
    "!": "unequal is written <>",
    '"': "strings are written in single quotes",
    "=": "equal is written =, once",
    "LIKE": "there is no LIKE, but CONTAINS, STARTSWITH and ENDSWITH",
    "-": "there is no arithmetic; a comment that starts with -- ends with its line",
    **dict.fromkeys("+*/%", "there is no arithmetic"),
}
_IN_WORDS = frozenset(f"{ascii_letters}{digits}_")
_NUMBER_HINT = "a number has decimal digits, no leading zeros, and an L only after an integer"
_BOOLEAN_LEFT = (
    "a boolean left of = or <> never equals a string (write a = TRUE; write NOT (a = 'x'))"
)
NULL = Truth(None)


class ExpressionError(Exception):
    """A refused expression; the text has the place of the error, counted from 1."""

    def __init__(self, text: str, index: int, reason: str) -> None:
        begin, end = max(index - _SHOWN_CHARACTERS, 0), index + _SHOWN_CHARACTERS
        before, behind = text[begin:index], text[index:end]
        shown = f"{'...' * (begin > 0)}{before}>>>{behind}{'...' * (end < len(text))}"
        super().__init__(f"{reason}, at character {index + 1}, after >>> in: {shown}")


def parse(text: str) -> Expression:
    """Returns the expression of `text`. Raises ExpressionError."""
    if len(text) > CHARACTERS_MAX:
        reason = f"it has {len(text)} characters, limit {CHARACTERS_MAX}"
        raise ExpressionError(text, CHARACTERS_MAX, reason)
    try:
        return _as_condition(cast("_Part", _parser().parse(text)))
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    except _RefusedError as error:
        raise ExpressionError(text, error.index, error.reason) from None


def prepare() -> None:
    """Builds the parser, so that the first expression takes no longer than later ones."""
    _parser()


@cache
def _parser() -> Lark:
    """Returns the parser; building its tables takes about 20 ms, see `prepare`."""
    return Lark(GRAMMAR, start="any_of", parser="lalr", lexer="basic", transformer=_Builder())


def _syntax_error(text: str, error: UnexpectedInput) -> ExpressionError:
    if isinstance(error, UnexpectedCharacters):
        index = cast("int", error.pos_in_stream)
        found = text[index]
        if found == "'":
            return ExpressionError(text, index, "a string is not closed")
        if text.startswith("/*", index):
            return ExpressionError(text, index, "a comment is not closed")
        reason = f"{found!r} starts no token"
    else:
        assert isinstance(error, UnexpectedToken)
        token = error.token
        if token.type == "$END":
            reason = "it ends where more is needed" if text.strip() else "it is empty"
            return ExpressionError(text, len(text), reason)
        index, found = _index(token), str(token)
        reason = f"{_shortened(found)} is not accepted here"
    hint = _HINTS.get(found.upper())
    if (
        hint is None
        and (found[0].isalnum() or found[0] == "_")
        and text[index - 1 : index].isdigit()
    ):
        hint = _NUMBER_HINT
    return ExpressionError(text, index, f"{reason} ({hint})" if hint else reason)


def _shortened(found: str) -> str:
    return repr(found if len(found) <= _SHOWN_CHARACTERS else f"{found[:_SHOWN_CHARACTERS]}...")


class _RefusedError(Exception):
    """A well-formed part that is not accepted."""

    def __init__(self, part: _Part, reason: str) -> None:
        super().__init__(reason)
        self.index = part.index
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Part:
    """A parsed part of the text: its start, expression, depth and number of terms."""

    index: int
    says: Expression
    depth: int = 1
    terms: int = 1


def _joined(says: Expression, *parts: _Part) -> _Part:
    """Returns a part made of parts. Raises _RefusedError beyond DEPTH_MAX or TERMS_MAX."""
    part = _Part(
        parts[0].index,
        says,
        1 + max(part.depth for part in parts),
        sum(part.terms for part in parts),
    )
    if part.depth > DEPTH_MAX:
        raise _RefusedError(parts[-1], f"it is nested too deeply, limit {DEPTH_MAX} levels")
    if part.terms > TERMS_MAX:
        raise _RefusedError(parts[-1], f"it has too many terms, limit {TERMS_MAX}")
    return part


def _chained(kind: type[AllOf | AnyOf], left: _Part, right: _Part) -> _Part:
    """Returns a chain of AND or OR with one operand more; a chain does not nest."""
    says = left.says
    operands = says.operands if isinstance(says, kind) else (_as_condition(left),)
    part = _joined(kind((*operands, _as_condition(right))), left, right)
    return replace(part, depth=part.depth - 1) if isinstance(says, kind) else part


def _as_condition(part: _Part) -> Expression:
    """Returns the condition of an operand or of the whole text. Raises _RefusedError."""
    if isinstance(part.says, Property):
        return Condition(part.says)
    if not isinstance(part.says, CONDITIONS):
        raise _RefusedError(part, "a condition is needed, such as a = 1, and this is a value")
    return part.says


def _require_ordered(*parts: _Part) -> None:
    """Raises _RefusedError for operands of an order comparison that are texts or conditions."""
    for part in parts:
        if isinstance(part.says, (Text, *CONDITIONS)):
            raise _RefusedError(
                part, "<, <=, >, >= and BETWEEN compare numbers and properties only"
            )


def _require_equatable(left: _Part, right: _Part) -> None:
    for part in (left, right):
        if part.says == NULL:
            raise _RefusedError(part, "nothing is compared with NULL; write IS NULL or IS NOT NULL")
    if isinstance(left.says, Truth) and isinstance(right.says, (Text, Number)):
        raise _RefusedError(right, "TRUE and FALSE never equal a text or a number")
    if isinstance(left.says, CONDITIONS) and isinstance(right.says, (Text, Property)):
        raise _RefusedError(left, _BOOLEAN_LEFT)


@v_args(inline=True)
class _Builder(Transformer[Token, _Part]):
    """A builder of parts for the grammar's rules; its methods raise _RefusedError."""

    def property(self, token: Token) -> _Part:
        return _Part(_index(token), Property(str(token)))

    def text(self, token: Token) -> _Part:
        return _Part(_index(token), Text(_string(token)))

    def integer(self, token: Token) -> _Part:
        value = int(token.rstrip("lL"))
        part = _Part(_index(token), Number.of_integer(value))
        if value > INT64_MAX:
            raise _RefusedError(part, f"an integer is at most {INT64_MAX}")
        return part

    def double(self, token: Token) -> _Part:
        value = float(token)
        part = _Part(_index(token), Number(value, NumberType.DOUBLE))
        significand = token.lower().partition("e")[0]
        if math.isinf(value) or (value == 0 and significand.strip("0.")):
            reason = "a double reaches from 4.9E-324 to 1.7976931348623157E308, or is 0.0"
            raise _RefusedError(part, reason)
        return part

    def true(self, token: Token) -> _Part:
        return _Part(_index(token), Truth(value=True))

    def false(self, token: Token) -> _Part:
        return _Part(_index(token), Truth(value=False))

    def null(self, token: Token) -> _Part:
        return _Part(_index(token), NULL)

    def parentheses(self, inner: _Part) -> _Part:
        return _joined(inner.says, inner)

    def negation(self, operand: _Part) -> _Part:
        return _joined(Negation(operand.says), operand)

    def negated(self, operand: _Part) -> _Part:
        return _joined(Not(_as_condition(operand)), operand)

    def any_of(self, left: _Part, right: _Part) -> _Part:
        return _chained(AnyOf, left, right)

    def all_of(self, left: _Part, right: _Part) -> _Part:
        return _chained(AllOf, left, right)

    def equal(self, left: _Part, right: _Part) -> _Part:
        _require_equatable(left, right)
        return _joined(Equal(left.says, right.says), left, right)

    def not_equal(self, left: _Part, right: _Part) -> _Part:
        _require_equatable(left, right)
        return _joined(Not(Equal(left.says, right.says)), left, right)

    def is_null(self, operand: _Part, _null: Token) -> _Part:
        return _joined(Equal(operand.says, NULL), operand)

    def is_not_null(self, operand: _Part, _null: Token) -> _Part:
        return _joined(Not(Equal(operand.says, NULL)), operand)

    def ordered(self, left: _Part, operator: Token, right: _Part) -> _Part:
        _require_ordered(left, right)
        return _joined(Ordered(Operator(str(operator)), left.says, right.says), left, right)

    def between(self, value: _Part, low: _Part, high: _Part) -> _Part:
        _require_ordered(value, low, high)
        if isinstance(low.says, Number) and isinstance(high.says, Number):  # noqa: SIM102
            if compare(low.says, high.says) > 0:
                raise _RefusedError(low, "BETWEEN starts with the lower bound")
        return _joined(
            AllOf(
                (
                    Ordered(Operator.GREATER_OR_EQUAL, value.says, low.says),
                    Ordered(Operator.LESS_OR_EQUAL, value.says, high.says),
                )
            ),
            *(value, low, value, high),
        )

    def not_between(self, value: _Part, low: _Part, high: _Part) -> _Part:
        _require_ordered(value, low, high)
        return _joined(
            AnyOf(
                (
                    Ordered(Operator.LESS, value.says, low.says),
                    Ordered(Operator.GREATER, value.says, high.says),
                )
            ),
            *(value, low, value, high),
        )

    def one_of(self, operand: _Part, *texts: Token) -> _Part:
        if not isinstance(operand.says, Property):
            raise _RefusedError(operand, "only a property can be IN a list")
        return _joined(OneOf(operand.says, tuple(_string(text) for text in texts)), operand)

    def not_one_of(self, operand: _Part, *texts: Token) -> _Part:
        inner = self.one_of(operand, *texts)
        return _joined(Not(inner.says), inner)

    def search(self, token: Token) -> Search:
        return Search[token.upper()]

    def searched(self, operand: _Part, search: Search, text: Token) -> _Part:
        says = Searched(search, operand.says, _string(text), is_negated=False)
        return _joined(says, operand)

    def not_searched(self, operand: _Part, search: Search, text: Token) -> _Part:
        says = Searched(search, operand.says, _string(text), is_negated=True)
        return _joined(says, operand)


def _index(token: Token) -> int:
    index: int = token.start_pos or 0
    return index


def _string(token: Token) -> str:
    """Returns the text between the quotes; two quotes inside are one."""
    return token[1:-1].replace("''", "'")

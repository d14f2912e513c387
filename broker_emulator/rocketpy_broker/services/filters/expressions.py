"""The parts of an SQL92 expression.

Each class is an operation of docs/design/broker_behaviour.md section 3; `evaluation` evaluates it.
Equivalent forms of SQL are one class: `a IS NULL` is `Equal(a, Truth(None))`, `a NOT IN` is
`Not(OneOf)`, and BETWEEN is two `Ordered`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, Union

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


class NumberType(Enum):
    """The types of numbers, from the narrowest to the widest."""

    INT32 = auto()
    INT64 = auto()
    DOUBLE = auto()


class Operator(Enum):
    """The operators of an order comparison."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class Search(Enum):
    """The positions of a searched text in a string."""

    CONTAINS = auto()
    STARTSWITH = auto()
    ENDSWITH = auto()


@dataclass(frozen=True, slots=True)
class Property:
    """A message's property: a string, or NULL."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal, possibly negated."""

    value: int | float
    type: NumberType

    @classmethod
    def of_integer(cls, value: int) -> Number:
        """Returns an integer of the narrower type that holds it."""
        return cls(value, NumberType.INT32 if value <= INT32_MAX else NumberType.INT64)

    def negated(self) -> Number:
        """Returns the negated number of the same type."""
        return Number(-self.value, self.type)


@dataclass(frozen=True, slots=True)
class Truth:
    """The literals TRUE, FALSE and, as None, NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negation:
    """`-x`: a negated number, or NULL for any other value."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Condition:
    """A property that stands as a condition."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND, from left to right."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR, from left to right."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """`=`."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Ordered:
    """`<`, `<=`, `>`, `>=`."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class OneOf:
    """IN."""

    operand: Property
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Searched:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms."""

    search: Search
    operand: Expression
    text: str
    is_negated: bool


Expression: TypeAlias = Union[  # noqa: UP007 (classes above name it before it is there)
    Property,
    Text,
    Number,
    Truth,
    Negation,
    Condition,
    Not,
    AllOf,
    AnyOf,
    Equal,
    Ordered,
    OneOf,
    Searched,
]
# Expressions of one token.
LITERALS = (Text, Number, Truth)
# Expressions with the value TRUE, FALSE or NULL.
CONDITIONS = (Truth, Condition, Not, AllOf, AnyOf, Equal, Ordered, OneOf, Searched)


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yields the expression and all its parts."""
    yield expression
    match expression:
        case AllOf(operands) | AnyOf(operands):
            inner: tuple[Expression, ...] = operands
        case Equal(left, right) | Ordered(_, left, right):
            inner = (left, right)
        case Negation(operand) | Condition(operand) | Not(operand) | OneOf(operand, _):
            inner = (operand,)
        case Searched():
            inner = (expression.operand,)
        case _:
            inner = ()
    for part in inner:
        yield from parts_of(part)

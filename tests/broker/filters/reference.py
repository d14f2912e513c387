"""A slow, plain evaluator of SQL92 expressions, for one message at a time.

It follows docs/design/broker_behaviour.md section 3.3. A value is a string, an `Int32`, an `Int64`,
a float, a boolean, or None for NULL. Raises EvaluationError where RocketMQ fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rocketpy_broker.services.filters.expressions import (
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

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_BLANKS = "".join(map(chr, range(33)))


class EvaluationError(Exception):
    """An error in evaluation: the message does not match."""


@dataclass(frozen=True)
class Int32:
    value: int


@dataclass(frozen=True)
class Int64:
    value: int


Properties: TypeAlias = Mapping[str, str]
Numeric: TypeAlias = Int32 | Int64 | float
Value: TypeAlias = str | Int32 | Int64 | float | bool | None


def result(expression: Expression, properties: Properties) -> str:
    """Returns T, F, N for NULL, or E for an error."""
    try:
        value = evaluate(expression, properties)
    except EvaluationError:
        return "E"
    assert value is None or isinstance(value, bool)
    return {True: "T", False: "F", None: "N"}[value]


def evaluate(expression: Expression, properties: Properties) -> Value:  # noqa: PLR0911
    if isinstance(expression, Property):
        return properties.get(expression.name)
    if isinstance(expression, Text):
        return expression.value
    if isinstance(expression, Number):
        return _number(expression)
    if isinstance(expression, Truth):
        return expression.value
    if isinstance(expression, Negation):
        return _negated(evaluate(expression.operand, properties))
    if isinstance(expression, Condition):
        return None if evaluate(expression.operand, properties) is None else False
    return _condition(expression, properties)


def _condition(expression: Expression, properties: Properties) -> bool | None:  # noqa: PLR0911
    if isinstance(expression, Not):
        value = evaluate(expression.operand, properties)
        return None if value is None else not value
    if isinstance(expression, (AllOf, AnyOf)):
        return _chain(expression, properties)
    if isinstance(expression, Equal):
        left = evaluate(expression.left, properties)
        return _equal(left, evaluate(expression.right, properties))
    if isinstance(expression, Ordered):
        left = evaluate(expression.left, properties)
        if left is None:
            return None
        right = evaluate(expression.right, properties)
        return None if right is None else _ordered(expression.operator, left, right)
    if isinstance(expression, OneOf):
        value = evaluate(expression.operand, properties)
        return value in expression.texts if isinstance(value, str) else None
    assert isinstance(expression, Searched)
    # An empty text is never searched for, whatever the operand's value is.
    return bool(expression.text) and _searched(expression, evaluate(expression.operand, properties))


def _chain(expression: AllOf | AnyOf, properties: Properties) -> bool | None:
    deciding = isinstance(expression, AnyOf)
    has_null = False
    for operand in expression.operands:
        value = evaluate(operand, properties)
        if value is deciding:
            return deciding
        has_null |= value is None
    return None if has_null else not deciding


def _searched(expression: Searched, value: Value) -> bool:
    if not isinstance(value, str):
        return False
    found = {
        Search.CONTAINS: expression.text in value,
        Search.STARTSWITH: value.startswith(expression.text),
        Search.ENDSWITH: value.endswith(expression.text),
    }[expression.search]
    return found is not expression.is_negated


def _number(number: Number) -> Numeric:
    if number.type is NumberType.DOUBLE:
        return float(number.value)
    assert isinstance(number.value, int)
    return Int32(number.value) if number.type is NumberType.INT32 else Int64(number.value)


def _negated(value: Value) -> Value:
    if isinstance(value, Int32):
        return Int32(-value.value)
    if isinstance(value, Int64):
        return Int64(-value.value)
    return -value if isinstance(value, float) else None


def _equal(left: Value, right: Value) -> bool | None:  # noqa: PLR0911
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) and isinstance(right, bool):
        return left is right
    if isinstance(left, bool):
        assert not isinstance(right, str)
        return False
    if isinstance(right, bool):
        return isinstance(left, str) and (left.lower() == "true") is right
    return _key(left, right) == _key(right, left)


def _ordered(operator: Operator, left: Value, right: Value) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        left, right = _double(left), _double(right)
    assert not isinstance(left, bool)
    assert not isinstance(right, bool)
    mine, theirs = _key(left, right), _key(right, left)
    return {
        Operator.LESS: mine < theirs,
        Operator.LESS_OR_EQUAL: mine <= theirs,
        Operator.GREATER: mine > theirs,
        Operator.GREATER_OR_EQUAL: mine >= theirs,
    }[operator]


def _key(value: Value, other: Value) -> tuple[float, ...]:
    """Returns a sort key, in Java's order of numbers of the type in which both values meet."""
    if isinstance(value, str):
        value = _converted(value, other)
    if isinstance(value, float) or isinstance(other, float):
        number = value if isinstance(value, float) else float(_integer(value))
        return _double_key(number)
    return (_integer(value),)


def _integer(value: Value) -> int:
    assert isinstance(value, (Int32, Int64))
    return value.value


def _double_key(number: float) -> tuple[float, ...]:
    if math.isnan(number):
        return (1, 0, 0)
    return (0, number, math.copysign(1, number) if number == 0 else 0)


def _converted(text: str, other: Value) -> Numeric:
    if isinstance(other, float):
        return _double(text)
    bits = 32 if isinstance(other, Int32) else 64
    if not _INTEGER.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise EvaluationError
    return Int32(int(text)) if bits == 32 else Int64(int(text))


def _double(text: str) -> float:
    text = text.strip(_BLANKS)
    if not _DOUBLE.fullmatch(text):
        raise EvaluationError
    return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))

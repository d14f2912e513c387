"""Evaluation of an expression for all records of a block.

There is no loop over records: each part is evaluated for all rows at once. NULL and ERROR are two
more truths beside TRUE and FALSE. RocketMQ does not evaluate a right operand that cannot change the
result; such an operand's error is ignored here, too.
Source: docs/design/broker_behaviour.md section 3.3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.services.filters.columns import (
    ERROR,
    FALSE,
    NULL,
    TRUE,
    Strings,
    Truths,
    Value,
    select,
    states,
    truths,
)
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
from rocketpy_broker.services.filters.numbers import Scale, scaled, wider

Properties = Mapping[str, Strings]
Compare = Callable[[Scale, Scale], NDArray[np.bool_]]
Mask = NDArray[np.bool_]
_TRUTHS = {False: FALSE, True: TRUE, None: NULL}
_NOT = np.array([TRUE, FALSE, NULL, ERROR], np.uint8)
# Indexed by the left operand, then the right one.
_AND = np.array(
    [
        [FALSE, FALSE, FALSE, FALSE],
        [FALSE, TRUE, NULL, ERROR],
        [FALSE, NULL, NULL, ERROR],
        [ERROR, ERROR, ERROR, ERROR],
    ],
    np.uint8,
)
_OR = np.array(
    [
        [FALSE, TRUE, NULL, ERROR],
        [TRUE, TRUE, TRUE, TRUE],
        [NULL, TRUE, NULL, ERROR],
        [ERROR, ERROR, ERROR, ERROR],
    ],
    np.uint8,
)
_COMPARE: Mapping[Operator, Compare] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_SEARCH: Mapping[Search, Callable[[pa.StringArray, str], pa.BooleanArray]] = {
    Search.CONTAINS: pc.match_substring,
    Search.STARTSWITH: pc.starts_with,
    Search.ENDSWITH: pc.ends_with,
}


def condition(expression: Expression, properties: Properties) -> Truths:
    """Returns a condition's truths; a single row if all rows are the same."""
    result: Truths
    match expression:
        case AllOf(operands):
            result = _folded(_AND, FALSE, operands, properties)
        case AnyOf(operands):
            result = _folded(_OR, TRUE, operands, properties)
        case Not(operand):
            result = _NOT[condition(operand, properties)]
        case Condition(operand):
            result = select(properties[operand.name].is_null, NULL, FALSE)
        case Equal(left, right):
            result = _equal(value_of(left, properties), value_of(right, properties))
        case Ordered(order, left, right):
            mine, theirs = value_of(left, properties), value_of(right, properties)
            result = _ordered(_COMPARE[order], mine, theirs)
        case OneOf(operand, texts):
            strings = properties[operand.name]
            found = _mask(pc.is_in(strings.array, pa.array(texts, pa.string())))
            result = select(strings.is_null, NULL, found.view(np.uint8))
        case Searched():
            result = _searched(expression, properties)
        case _:
            assert isinstance(expression, Truth)
            result = truths(_TRUTHS[expression.value])
    return result


def value_of(expression: Expression, properties: Properties) -> Value:
    """Returns the value of any part of an expression."""
    match expression:
        case Property(name):
            return properties[name]
        case Text(text):
            return Strings.of_literal(text)
        case Number():
            return expression
        case Negation(operand):
            return _negated(value_of(operand, properties))
    return condition(expression, properties)


def _negated(value: Value) -> Value:
    if isinstance(value, Number):
        return value.negated()
    if isinstance(value, Strings):
        return truths(NULL)
    return select(value == ERROR, ERROR, NULL)


def _folded(
    table: Truths, deciding: int, operands: tuple[Expression, ...], properties: Properties
) -> Truths:
    """Combines operands from left to right until all rows are decided."""
    result = condition(operands[0], properties)
    for operand in operands[1:]:
        if (result == deciding).all():
            break
        result = table[result, condition(operand, properties)]
    return result


def _equal(left: Value, right: Value) -> Truths:
    """Returns the truths of `=`: TRUE if both are NULL, NULL if left is, FALSE if right is."""
    mine, theirs = states(left), states(right)
    result = select(theirs == NULL, FALSE, _same(left, right))
    result = select(mine == NULL, select(theirs == NULL, TRUE, NULL), result)
    return select((mine == ERROR) | (theirs == ERROR), ERROR, result)


def _same(left: Value, right: Value) -> Truths:
    """Returns TRUE for rows with equal values, ERROR for values that cannot be compared.

    It ignores NULL and ERROR in the operands.
    """
    result: Truths
    match left, right:
        case Strings(), Strings():
            result = _mask(pc.equal(*_of_one_length(left, right))).view(np.uint8)
        case (Number() | Strings(), Number() | Strings()):
            result = _compared(operator.eq, left, right)
        case Strings(), np.ndarray():
            is_true = _mask(pc.equal(pc.ascii_lower(left.array), "true"))
            result = (is_true == (right == TRUE)).view(np.uint8)
        case np.ndarray(), np.ndarray():
            result = (left == right).view(np.uint8)
        case _:
            result = truths(FALSE)
    return result


def _ordered(compare: Compare, left: Value, right: Value) -> Truths:
    """Returns the truths of an order; NULL or ERROR of the left operand decides, then the right."""
    mine, theirs = states(left), states(right)
    result = truths(NULL)
    if not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
        result = _compared(compare, left, right)
    return select(mine == TRUE, select(theirs == TRUE, result, theirs), mine)


def _compared(compare: Compare, left: Strings | Number, right: Strings | Number) -> Truths:
    """Compares two values as numbers.

    Their type is the type of the one number, the wider type of two, or double for two strings.
    """
    kind = NumberType.DOUBLE
    if isinstance(left, Number):
        kind = wider(left, right) if isinstance(right, Number) else left.type
    elif isinstance(right, Number):
        kind = right.type
    mine, are_mine = _scale(left, kind)
    theirs, are_theirs = _scale(right, kind)
    return select(are_mine & are_theirs, compare(mine, theirs).view(np.uint8), ERROR)


def _scale(value: Strings | Number, kind: NumberType) -> tuple[Scale, Mask]:
    if isinstance(value, Number):
        return scaled(value, kind), np.ones(1, np.bool_)
    numbers = value.numbers(kind)
    return numbers.scale, numbers.is_number


def _of_one_length(left: Strings, right: Strings) -> tuple[pa.StringArray, pa.StringArray]:
    """Returns both arrays; the one with a single row as a scalar."""
    if len(left.array) == len(right.array):
        return left.array, right.array
    if len(left.array) == 1:
        return right.array, left.array[0]
    return left.array, right.array[0]


def _searched(expression: Searched, properties: Properties) -> Truths:
    """Returns the truths of a search, negated or not.

    They are FALSE for an empty text, and for values that are no strings.
    """
    if not expression.text:
        return truths(FALSE)
    value = value_of(expression.operand, properties)
    if isinstance(value, np.ndarray):
        return select(value == ERROR, ERROR, FALSE)
    if isinstance(value, Number):
        return truths(FALSE)
    found = _mask(_SEARCH[expression.search](value.array, expression.text))
    if expression.is_negated:
        found = ~found & ~value.is_null
    return found.view(np.uint8)


def _mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask

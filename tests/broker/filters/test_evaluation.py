"""Results of expressions: RocketMQ's own, and a plain evaluator's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rocketpy_broker.services.filters.columns import Strings
from rocketpy_broker.services.filters.evaluation import condition
from rocketpy_broker.services.filters.expressions import Expression, Property, parts_of
from rocketpy_broker.services.filters.parser import ExpressionError, parse
from tests.broker.filters import reference
from tests.broker.filters.generated import EXPRESSIONS, NAMES, NUMBERS, ROWS
from tests.broker.filters.vectors import DEPARTURES, VECTORS, Vector

Rows = Sequence[Mapping[str, str]]
SHOWN = "FTNE"


def results(expression: Expression, rows: Rows) -> str:
    """Returns the result of each row of a block, a letter each."""
    names = {part.name for part in parts_of(expression) if isinstance(part, Property)}
    columns = {
        name: Strings(pa.array([row.get(name) for row in rows], pa.string())) for name in names
    }
    found = np.broadcast_to(condition(expression, columns), len(rows))
    return "".join(SHOWN[each] for each in found)


@pytest.mark.parametrize("vector", [*VECTORS, *(each[:3] for each in DEPARTURES)], ids=str)
def test_c04_an_expression_yields_what_it_does_in_rocketmq(vector: Vector) -> None:
    text, properties, wanted = vector
    if wanted == "R":
        with pytest.raises(ExpressionError, match="at character"):
            parse(text)
        return
    expression = parse(text)
    assert results(expression, [properties]) == wanted
    assert reference.result(expression, properties) == wanted
    # Neighbours change nothing.
    rows: Rows = [{}, properties, {"a": "x", "b": "y"}, properties]
    assert results(expression, rows)[1::2] == wanted * 2


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        # Cases of docs/design/broker_behaviour.md section 3.3 without a vector.
        ("a = 5", ["+5", "-5", "005", "", "+", "5 ", "5l", "9" * 20], "TFTEEEEE"),
        ("a = -2147483648L", ["-2147483648", "2147483648"], "TF"),
        ("a < 2147483648", ["9223372036854775807", "9223372036854775808"], "FE"),
        ("a > -9223372036854775807", ["-9223372036854775808", "-9223372036854775809"], "FE"),
        ("a > 1.5", ["2f", "2D", "0x2p0", "1_0", "nan", "inf", "Infinity", "-NaN"], "TTEEEETT"),
        ("a > 1.5", ["+2", "2.", ".2e1", "\t2\n", "", ".", "2e", "+ 2"], "TTTTEEEE"),
        ("a < b", ["1"], "N"),
        ("a = TRUE", ["tRuE", "true ", "TRUE"], "TFT"),
        ("(b IS NULL) = a", ["true", "x"], "R"),
        ("a = (b IS NULL)", ["true", "x"], "TF"),
        ("(b IS NULL) = 1", ["1"], "F"),
        ("-(a = 1) IS NULL", ["1", "x"], "TE"),
        ("-(a = 1) < 5", ["1", "x"], "NE"),
        ("b < -(a > 1)", ["1", "x"], "NN"),
        ("a < -(a > 1)", ["1", "x"], "NE"),
        ("(a = 1) CONTAINS 'x'", ["1", "x"], "FE"),
        ("(a = 1) NOT CONTAINS ''", ["1", "x"], "FF"),
        ("5 CONTAINS 'x' OR NULL NOT CONTAINS 'x' OR - a CONTAINS '1'", ["1"], "F"),
        ("b = a", ["x"], "N"),
        ("a = b", ["x"], "F"),
        ("b = c", ["x"], "T"),
        ("a > 1 AND b = 1", ["2", "0", "x"], "NFE"),
        ("b = 1 AND a > 1", ["2", "0", "x"], "NFE"),
        ("b = 1 OR a > 1", ["2", "0", "x"], "TNE"),
        ("9007199254740993 = 9007199254740992.0", ["1"], "T"),
        ("a > 1 > 2 OR TRUE", [], "R"),
        ("a > 0.0", ["0", "-0", "0.0", "1", "-1", "1e-400", "NaN", "x", ""], "FFFTFFTEE"),
        ("a >= 0.0", ["0", "-0", "-0.0", "+0", " 0 ", "-1e-400"], "TFFTTF"),
        ("a = -0.0", ["0", "-0", "-0.0", "-1e-400"], "FTTT"),
        ("a < -0.0", ["0", "-0", "-4.9e-324", "-Infinity"], "FFTT"),
        ("a NOT BETWEEN -0.0 AND .0e1", ["0", "-0", "1", "-1"], "FFTT"),
    ],
)
def test_c04_rules_of_types_and_nulls(text: str, values: list[str], wanted: str) -> None:
    if wanted == "R":
        with pytest.raises(ExpressionError):
            parse(text)
        return
    expression = parse(text)
    rows = [{"a": value} for value in values]
    assert results(expression, rows) == wanted
    assert "".join(reference.result(expression, row) for row in rows) == wanted


def test_c04_doubles_have_java_s_order() -> None:
    texts = ["-Infinity", "-1", "-0.0", "0", "1e-300", "1", "Infinity", "NaN"]
    rows = [{"a": low, "b": high} for low in texts for high in texts]
    expected = "".join(
        "T" if low < high else "F" for low in range(len(texts)) for high in range(len(texts))
    )
    assert results(parse("a < b"), rows) == expected
    assert results(parse("NOT (a >= b)"), rows) == expected


@given(EXPRESSIONS, ROWS)
@settings(max_examples=400)
def test_c04_a_block_yields_what_its_messages_yield_one_by_one(
    text: str, rows: list[dict[str, str]]
) -> None:
    try:
        expression = parse(text)
    except ExpressionError:
        assume(False)
    wanted = "".join(reference.result(expression, row) for row in rows)
    assert results(expression, rows) == wanted


@given(st.one_of(NAMES, NUMBERS), st.sampled_from(["=", "<", ">="]), ROWS)
@settings(max_examples=200)
def test_c04_a_comparison_converts_each_value_as_one_alone(
    operand: str, sign: str, rows: list[dict[str, str]]
) -> None:
    expression = parse(f"a {sign} {operand} OR {operand} {sign} b")
    wanted = "".join(reference.result(expression, row) for row in rows)
    assert results(expression, rows) == wanted

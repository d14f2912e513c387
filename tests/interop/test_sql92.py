"""SQL92 expressions, compared between our filter and RocketMQ's.

RocketMQ ignores text after a complete expression. So both get expressions in parentheses.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rocketpy_broker.services.filters.parser import ExpressionError, parse
from tests.broker.filters.generated import EXPRESSIONS, ROWS
from tests.broker.filters.test_evaluation import results
from tests.broker.filters.vectors import DEPARTURES, VECTORS, Vector
from tests.interop.rocketmq import JAVA_OPTIONS, V5, class_path_of, java_program
from tests.support.time_limits import WAIT_SECONDS_MAX

Rows = Sequence[Mapping[str, str]]
# The start of our refusal of a comparison that fails in RocketMQ for each message.
BOOLEAN_LEFT = "a boolean left of = or <>"
ZERO_MARK = "9.87654321E-310"
_STRING_OR_ZERO = re.compile(
    r"'(?:''|[^'])*'|(?<![A-Za-z0-9_$.])(?:0+\.0*|\.0+|0+(?=[eE]))(?:[eE][+-]?[0-9]+)?(?![0-9])"
)


class RocketMQFilter:
    """A Java process with RocketMQ's filter, see `java/FilterDriver.java`."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [java_program(), *JAVA_OPTIONS, "-cp", class_path_of(V5), "FilterDriver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )

    def results(self, expression: str, rows: Rows) -> str:
        """Returns a letter for each row, or R."""
        return self._answer({"expression": expression, "rows": rows})

    def results_with_zero(self, expression: str, rows: Rows) -> str:
        """Returns RocketMQ's results as if its parser accepted `0.0`."""
        text = _STRING_OR_ZERO.sub(
            lambda found: found[0] if found[0].startswith("'") else ZERO_MARK, expression
        )
        return self._answer({"expression": text, "rows": rows, "zero": text != expression})

    def _answer(self, request: Mapping[str, object]) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return self.process.stdout.readline().decode().strip()

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(WAIT_SECONDS_MAX)


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQFilter]:
    """Yields RocketMQ's filter."""
    running = RocketMQFilter(tmp_path_factory.mktemp("filter") / "rocketmq.log")
    yield running
    running.end()


def ours(expression: str, rows: Rows) -> str:
    """Returns the same for our filter; B for a boolean to the left of a string."""
    try:
        parsed = parse(expression)
    except ExpressionError as error:
        return "B" if str(error).startswith(BOOLEAN_LEFT) else "R"
    return results(parsed, rows)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_c04_the_vectors_are_rocketmq_s(rocketmq: RocketMQFilter, vector: Vector) -> None:
    text, properties, wanted = vector
    assert rocketmq.results(text, [properties]) == wanted


@pytest.mark.parametrize("departure", DEPARTURES, ids=str)
def test_c04_the_filter_departs_where_it_says(
    rocketmq: RocketMQFilter, departure: tuple[str, dict[str, str], str, str]
) -> None:
    text, properties, mine, rocketmq_s = departure
    assert ours(text, [properties]).replace("B", "R") == mine
    assert rocketmq.results(text, [properties]) == rocketmq_s


@given(EXPRESSIONS, ROWS)
@settings(max_examples=3000, deadline=None)
def test_c04_any_expression_does_in_rocketmq_what_it_does_here(
    rocketmq: RocketMQFilter, text: str, rows: list[dict[str, str]]
) -> None:
    expression = f"({text})"
    mine = ours(expression, rows)
    assume(mine != "B")
    theirs = rocketmq.results_with_zero(expression, rows)
    # The smallest double that replaces 0.0 is more than the upper bound 0.
    assume(theirs != "R" or mine == "R" or "BETWEEN" not in expression)
    assert mine == theirs


TOKENS = st.sampled_from(
    [
        *("a", "b", "1", "2.5", "5L", "0", "05", ".5", "5.", "1e3", "0.5", "'x'", "''", "'it''s'"),
        *(
            "=",
            "<>",
            "<",
            "<=",
            ">",
            ">=",
            "(a)",
            "('x', 'y')",
            ",",
            "+",
            "-",
            "--\n",
            "/**/",
            "/* ' **/",
        ),
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "null", "IS", "Contains", "STARTSWITH"),
        *("!=", '"x"', "*", ";", "$c", "_", "ä", "-- x\r", "--", "/*", "'", "LIKE", "\f", "9" * 19),
    ]
)


@given(st.lists(TOKENS, max_size=9), st.sampled_from(["", " "]))
@settings(max_examples=3000, deadline=None)
def test_c04_any_tokens_are_read_or_refused_as_rocketmq_does(
    rocketmq: RocketMQFilter, tokens: list[str], between: str
) -> None:
    expression = f"({between.join(tokens)})"
    rows = [{"a": "1", "b": "x"}]
    mine = ours(expression, rows)
    assume(mine != "B")
    assert mine == rocketmq.results(expression, rows)


VALUES = (
    *("0", "-0", "+0", "0.0", "-0.0", "1", "+1", "01", "-1", "1.0", "1.5", "-1.5", ".5", "5."),
    *(
        "1e3",
        "1000",
        "31",
        "017",
        "0x1F",
        "1L",
        "1.5f",
        " 1",
        "1 ",
        "",
        "x",
        "it's",
        "true",
        "FALSE",
    ),
    *("NULL", "NaN", "Infinity", "-Infinity", "4.9E-324", "1e-400", "1e400"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
)
# Each value in `a`, also beside another one in all other properties; and no properties.
GRID_ROWS: Rows = [
    {},
    *({"a": value} for value in VALUES),
    *(
        {"a": value, **dict.fromkeys(("b", "A", "$", "NOW"), other)}
        for value in VALUES
        for other in ("1", "0.0", "x", "true")
    ),
    {"b": "1"},
]
NUMBER_FORMS = (
    *("0", "1", "-1", "+1", "- -1", "00", "017", "0x1F", "1_0", "0L", "1L", "1l", "-0", "1000"),
    *("0.0", "0.", ".0", "-0.0", "0e0", "00.0", "1.0", "1.", ".5", "1.5", "-1.5", "1e3", "1E+3"),
    *("1e-3", "1.5f", "1d", "1e", ".", "1.e1", "4.9E-324", "1e-400", "1e400"),
    *("1.7976931348623157E308", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *("9223372036854775807L", "9223372036854775808", "-9223372036854775808"),
)
OTHER_FORMS = (
    *("'x'", "''", "'it''s'", "'1'", "'0.0'", "'true'", "'a", '"x"', "TRUE", "true", "False"),
    *("FALSE", "NULL", "null", "a", "b", "A", "(a)", "-a", "+a", "NOT a", "(a = 1)", "(a IS NULL)"),
    *("(a > 1.0)", "-(a = 1)", "NOW", "a.b", "$"),
)
FORMS = (*NUMBER_FORMS, *OTHER_FORMS)


def grid() -> Iterator[str]:
    """Yields every literal form in every operator, on both sides."""
    for left, right in itertools.product(FORMS, FORMS):
        if {"a", "b", "TRUE", "NULL", "1", "'x'", "1.5", "0.0"} & {left, right}:
            for operator in ("=", "<>", "<", "<=", ">", ">="):
                yield f"{left} {operator} {right}"
    for form, negation in itertools.product(FORMS, ("", "NOT ")):
        yield f"{form} IS {negation}NULL"
        for word in ("CONTAINS", "STARTSWITH", "ENDSWITH", "LIKE"):
            yield f"{form} {negation}{word} 'x'"
            yield f"a {negation}{word} {form}"
        yield f"{form} {negation}IN ('x', '1', '')"
        yield f"a {negation}IN ({form})"
        yield f"a {negation}IN ('x', {form})"
        yield f"{form} {negation}BETWEEN 0 AND 5"
        for bound in ("a", "b", "1", "1.5", "2147483648"):
            yield f"a {negation}BETWEEN {form} AND {bound}"
            yield f"a {negation}BETWEEN {bound} AND {form}"
        for word, other in itertools.product(("AND", "OR"), ("a = 1", "b = 1.0", "TRUE", "NULL")):
            yield f"{negation}{form} {word} {other}"
            yield f"{other} {word} {negation}({form})"
        yield f"{negation}{form}"


def unlike(rocketmq: RocketMQFilter, expression: str) -> str:
    """Returns the difference between both filters, empty if there is none."""
    mine = ours(expression, GRID_ROWS)
    if mine == "B":
        letters = rocketmq.results_with_zero(expression, GRID_ROWS)
        full = [letter for letter, row in zip(letters, GRID_ROWS, strict=True) if len(row) > 1]
        return "" if set(full) <= {"E", "N"} else f"{expression}: refused, RocketMQ: {letters}"
    theirs = rocketmq.results_with_zero(expression, GRID_ROWS)
    return "" if mine == theirs else f"{expression}: {mine}, RocketMQ: {theirs}"


def test_c04_every_literal_form_does_in_rocketmq_what_it_does_here(
    rocketmq: RocketMQFilter,
) -> None:
    expressions = [f"({expression})" for expression in grid()]
    differences = [text for each in expressions if (text := unlike(rocketmq, each))]
    assert not differences, f"{len(differences)} of {len(expressions)}: {differences[:40]}"

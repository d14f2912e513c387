"""SQL92 expressions, between our filter and RocketMQ's own one (row C04).

RocketMQ's passes over what stands behind a complete expression. So both get expressions in
parentheses, behind which nothing can stand.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.services.filters.parsing import ExpressionError, parse
from tests.broker.filters.generated import EXPRESSIONS, ROWS
from tests.broker.filters.test_evaluation import results
from tests.broker.filters.vectors import VECTORS, Vector
from tests.interop.rocketmq import JAVA_OPTIONS, V5, class_path_of
from tests.patience import PATIENCE_SECONDS

Rows = Sequence[Mapping[str, str]]


class RocketMQFilter:
    """A Java process with RocketMQ's filter, see `java/FilterDriver.java`."""

    def __init__(self, log: Path) -> None:
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [java, *JAVA_OPTIONS, "-cp", class_path_of(V5), "FilterDriver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )

    def results(self, expression: str, rows: Rows) -> str:
        """A letter for each row, or R."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"expression": expression, "rows": rows}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return self.process.stdout.readline().decode().strip()

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQFilter]:
    """RocketMQ's filter."""
    running = RocketMQFilter(tmp_path_factory.mktemp("filter") / "rocketmq.log")
    yield running
    running.end()


def ours(expression: str, rows: Rows) -> str:
    """The same of our filter."""
    try:
        parsed = parse(expression)
    except ExpressionError:
        return "R"
    return results(parsed, rows)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_c04_the_vectors_are_rocketmq_s(rocketmq: RocketMQFilter, vector: Vector) -> None:
    text, properties, wanted = vector
    assert rocketmq.results(text, [properties]) == wanted


@given(EXPRESSIONS, ROWS)
@settings(max_examples=3000, deadline=None)
def test_c04_any_expression_does_in_rocketmq_what_it_does_here(
    rocketmq: RocketMQFilter, text: str, rows: list[dict[str, str]]
) -> None:
    expression = f"({text})"
    assert ours(expression, rows) == rocketmq.results(expression, rows)


TOKENS = st.sampled_from(
    [
        *("a", "b", "1", "2.5", "5L", "0", "05", ".5", "5.", "1e3", "0.0", "'x'", "''", "'it''s'"),
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
    assert ours(expression, rows) == rocketmq.results(expression, rows)

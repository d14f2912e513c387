"""Expressions as texts: tokens, refusals and their positions, and bounds."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.filters.expressions import (
    AllOf,
    AnyOf,
    Equal,
    Negation,
    Number,
    NumberType,
    OneOf,
    Property,
    Text,
    Truth,
)
from rocketpy_broker.services.filters.parser import ExpressionError, parse

A_IS_1 = Equal(Property("a"), Number(1, NumberType.INT32))
ORDERS = "<, <=, >, >= and BETWEEN compare numbers and properties only"
CONDITION = "a condition is needed"
BOOLEAN = "a boolean left of = or <> never equals a string (write a = TRUE; write NOT (a = 'x'))"
MORE = "it ends where more is needed"


def refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "\t a\r\n=\f1 ",
        "(((a) = (1)))",
        "a = + 1",
        "a -- = 2\n = 1",
        "a -- = 2\r= 1 -- 3\r\n",
        "/* x */ a /* ' ** / * */ = 1/**/",
        "a = 1L",
        "a --- = 2\n = 1",
        "a = 1 ---\n--\n",
    ],
)
def test_c04_blanks_and_comments_say_nothing(text: str) -> None:
    assert parse(text) == A_IS_1


@pytest.mark.parametrize("text", ["a = --1", "a = - -1", "--\na = --1", "a =-/**/-1"])
def test_c04_hyphens_in_a_line_without_an_end_are_signs(text: str) -> None:
    assert parse(text) == Equal(Property("a"), Negation(Negation(A_IS_1.right)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", Number(0, NumberType.INT32)),
        ("2147483647", Number(2147483647, NumberType.INT32)),
        ("2147483648", Number(2147483648, NumberType.INT64)),
        ("9223372036854775807l", Number(9223372036854775807, NumberType.INT64)),
        ("5.5", Number(5.5, NumberType.DOUBLE)),
        ("5.", Number(5.0, NumberType.DOUBLE)),
        ("5.5E10", Number(5.5e10, NumberType.DOUBLE)),
        ("5.e-1", Number(0.5, NumberType.DOUBLE)),
        (".5", Number(0.5, NumberType.DOUBLE)),
        (".5E-3", Number(0.5e-3, NumberType.DOUBLE)),
        ("5E+10", Number(5e10, NumberType.DOUBLE)),
        ("007.5", Number(7.5, NumberType.DOUBLE)),
        ("0.0", Number(0.0, NumberType.DOUBLE)),
        (".0", Number(0.0, NumberType.DOUBLE)),
        ("0.", Number(0.0, NumberType.DOUBLE)),
        ("0e9", Number(0.0, NumberType.DOUBLE)),
        ("00.00E-400", Number(0.0, NumberType.DOUBLE)),
        ("4.9E-324", Number(5e-324, NumberType.DOUBLE)),
        ("1.7976931348623157E308", Number(1.7976931348623157e308, NumberType.DOUBLE)),
    ],
)
def test_c04_numbers_have_a_type(text: str, number: Number) -> None:
    assert parse(f"a = {text}") == Equal(Property("a"), number)


@pytest.mark.parametrize(
    ("text", "name"),
    [("NOTE = 1", "NOTE"), ("_ = 1", "_"), ("$ = 1", "$"), ("in$ = 1", "in$"), ("l = 1", "l")],
)
def test_c04_a_name_may_begin_like_a_keyword(text: str, name: str) -> None:
    assert parse(text) == Equal(Property(name), A_IS_1.right)


def test_c04_keywords_have_any_case_and_and_binds_tighter_than_or() -> None:
    said = parse("True oR a = 1 aNd fALSE AND nuLL")
    assert said == AnyOf(
        (Truth(value=True), AllOf((A_IS_1, Truth(value=False), Truth(value=None))))
    )


@given(st.text().filter(lambda text: len(text) < 1000))
def test_c04_any_string_can_be_written(value: str) -> None:
    quoted = value.replace("'", "''")
    assert parse(f"a = '{quoted}'") == Equal(Property("a"), Text(value))


@pytest.mark.parametrize(
    ("text", "reason", "character"),
    [
        # Syntax.
        ("", "it is empty", 1),
        (" ", "it is empty", 2),
        ("a =", MORE, 4),
        ("a = 1 OR", MORE, 9),
        ("(a = 1", MORE, 7),
        ("a IN ('x'", MORE, 10),
        ("a IN ()", "')' is not accepted here", 7),
        ("a IN ('x',)", "')' is not accepted here", 11),
        ("a IN (1)", "'1' is not accepted here", 7),
        ("a IN 'x'", "\"'x'\" is not accepted here", 6),
        ("a CONTAINS b", "'b' is not accepted here", 12),
        ("a CONTAINS 1", "'1' is not accepted here", 12),
        ("a NOT = 1", "'=' is not accepted here", 7),
        ("a IS 1", "'1' is not accepted here", 6),
        ("a BETWEEN 1", MORE, 12),
        ("AND", "'AND' is not accepted here", 1),
        ("a < > 1", "'>' is not accepted here", 5),
        # No tokens.
        ('a = "x"', "'\"' starts no token (strings are written in single quotes)", 5),
        ("a != 1", "'!' starts no token (unequal is written <>)", 3),
        ("a == 1", "'=' is not accepted here (equal is written =, once)", 4),
        ("a * 2 = 2", "'*' starts no token (there is no arithmetic)", 3),
        ("a.b = 'x'", "'.' starts no token", 2),
        ("a % 2 = 1", "'%' starts no token", 3),
        ("ä = 1", "'ä' starts no token", 1),
        ("a = 1;", "';' starts no token", 6),
        ("a = 'x", "a string is not closed", 5),
        ("a = 1 /* x", "a comment is not closed", 7),
        ("I\u017f NULL", "'\u017f' starts no token", 2),
        # After the end, where RocketMQ reads no further.
        ("a = 1 garbage", "'garbage' is not accepted here", 7),
        ("a = 1)", "')' is not accepted here", 6),
        ("a = 1 b = 2", "'b' is not accepted here", 7),
        ("a LIKE 'x%'", "'LIKE' is not accepted here (there is no LIKE", 3),
        ("a + 1 = 2", "'+' is not accepted here (there is no arithmetic)", 3),
        ("a-b = 1", "'-' is not accepted here (there is no arithmetic", 2),
        ("a = 05", "'5' is not accepted here (a number has decimal digits", 6),
        ("a = 0L", "'L' is not accepted here (a number has decimal digits", 6),
        ("1a = 'x'", "'a' is not accepted here (a number has decimal digits", 2),
        ("a = 1 -- note", "'-' is not accepted here (there is no arithmetic; a comment", 7),
        # What is no condition.
        ("1", CONDITION, 1),
        (" 'x'", CONDITION, 2),
        ("-a", CONDITION, 2),
        ("a = 1 AND 1", CONDITION, 11),
        ("1.5 OR a", CONDITION, 1),
        ("NOT 'x'", CONDITION, 5),
        ("a AND (b OR (2))", CONDITION, 14),
        # Operands without an order.
        ("a > 'x'", ORDERS, 5),
        ("'x' <= a", ORDERS, 1),
        ("a > TRUE", ORDERS, 5),
        ("a < NULL", ORDERS, 5),
        ("a > (b = 1)", ORDERS, 6),
        ("a > 1 > 2", ORDERS, 1),
        ("NOT a < 5", ORDERS, 5),
        ("a BETWEEN 'a' AND 'b'", ORDERS, 11),
        ("a BETWEEN 1 AND NULL", ORDERS, 17),
        ("a NOT BETWEEN TRUE AND 1", ORDERS, 15),
        ("'x' NOT BETWEEN 1 AND 2", ORDERS, 1),
        ("a BETWEEN 5 AND 1", "BETWEEN starts with the lower bound", 11),
        ("a BETWEEN 5.5 AND 5", "BETWEEN starts with the lower bound", 11),
        # Operands that equal nothing.
        ("a = NULL", "nothing is compared with NULL; write IS NULL", 5),
        ("NULL <> a", "nothing is compared with NULL; write IS NULL", 1),
        ("TRUE = 1", "TRUE and FALSE never equal a text or a number", 8),
        ("FALSE <> 'x'", "TRUE and FALSE never equal a text or a number", 10),
        ("TRUE = a", BOOLEAN, 1),
        ("b = 'x' AND False <> a", BOOLEAN, 13),
        ("NOT a = 'x'", BOOLEAN, 5),
        ("(a = 1) = b", BOOLEAN, 2),
        ("'x' IN ('x')", "only a property can be IN a list", 1),
        ("a = 1 NOT IN ('x')", "only a property can be IN a list", 5),
        # Numbers that are none.
        ("a = 9223372036854775808", "an integer is at most 9223372036854775807", 5),
        ("a = -9223372036854775808", "an integer is at most 9223372036854775807", 6),
        ("a > 1e-400", "a double reaches from 4.9E-324 to 1.7976931348623157E308", 5),
        ("a > 0.1e-400", "a double reaches from 4.9E-324 to 1.7976931348623157E308", 5),
        ("a > 1e400", "a double reaches from 4.9E-324 to 1.7976931348623157E308", 5),
        ("a = 0x1F", "'x1F' is not accepted here (a number has decimal digits", 6),
        ("a = 017", "'17' is not accepted here (a number has decimal digits", 6),
        ("a = 1.5f", "'f' is not accepted here (a number has decimal digits", 8),
        ("a = 1e", "'e' is not accepted here (a number has decimal digits", 6),
        ("a = 1_000", "'_000' is not accepted here (a number has decimal digits", 6),
    ],
)
def test_c04_what_is_refused_is_told_with_its_place(text: str, reason: str, character: int) -> None:
    said = refusal(text)
    assert said.startswith(reason)
    assert f"at character {character}, after >>> in: {text[: character - 1]}>>>" in said


def test_c04_of_a_long_expression_a_part_is_shown() -> None:
    said = refusal(f"a = '{'x' * 500}' garbage AND b = '{'y' * 500}'")
    assert said.endswith(f"in: ...{'x' * 22}' >>>garbage AND b = '{'y' * 7}...")
    said = refusal(f"a = 1 {'b' * 500}")
    assert said.startswith(f"'{'b' * 24}...' is not accepted here, at character 7")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * 10_000_000, "it has 10000000 characters, limit 4096"),
        (" OR ".join(["a = 1"] * 10_000), "it has 89996 characters, limit 4096"),
        ("a" + " OR a" * 800, "it has too many terms, limit 128"),
        ("a AND " * 128 + "a", "it has too many terms, limit 128"),
        (" OR ".join(["a BETWEEN b AND c"] * 33), "it has too many terms, limit 128"),
        ("(" * 4096, MORE),
        ("(" * 2047 + "a" + ")" * 2047, "it is nested too deeply, limit 64 levels"),
        ("NOT " * 1000 + "a", "it is nested too deeply, limit 64 levels"),
        ("a = " + "-" * 4091 + "1", "it is nested too deeply, limit 64 levels"),
        ("a" + " = 1" * 1000, "it is nested too deeply, limit 64 levels"),
        ("a IS NULL" + " IS NULL" * 500, "it is nested too deeply, limit 64 levels"),
        ("a = " + "'" * 4091, "a string is not closed"),
        ("a = " + "/*" * 2000, "'*' starts no token"),
        ("a = " + "9" * 4000, "an integer is at most"),
        ("a = 1e" + "9" * 4000, "a double reaches from"),
    ],
    ids=lambda text: text[:16],
)
def test_c04_hostile_expressions_are_refused(text: str, reason: str) -> None:
    assert refusal(text).startswith(reason)


def test_c04_the_bounds_leave_room_for_what_is_sensible() -> None:
    assert parse(" OR ".join(["a = 1"] * 64)) == AnyOf((A_IS_1,) * 64)
    assert parse("(" * 62 + "a = 1" + ")" * 62) == A_IS_1
    texts = tuple(f"{number:036}" for number in range(100))
    listed = ",".join(f"'{text}'" for text in texts)
    assert parse(f"a IN ({listed})") == OneOf(Property("a"), texts)


@given(st.text("ab1'=<>()-+ \n/*,.ANDORTIS", max_size=40))
def test_c04_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        parse(text)

"""Patterns of topics, as connector and broker read them."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.topic_pattern import PatternError, TopicPattern

NAMES = ("orders", "orders1", "a.b", "axb", "ORDERS", "x\ud800", "orders\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders[[:digit:]]", ["orders1"]),
        (r"orders\pN", ["orders1"]),
        (r"orders\p{Nd}?", ["orders", "orders1"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        (r"a.\Qb\E|orders", ["orders", "a.b", "axb"]),
        ("(?i)orders", ["orders", "ORDERS"]),
        ("(?P<name>orders)", ["orders"]),
        ("(?m)^orders$", ["orders"]),
        ("order|rders1", []),
        (r"orders\z", ["orders"]),
        ("[[:^alpha:]]+", []),
    ],
)
def test_k05_whole_names_match_as_re2_reads_the_pattern(text: str, found: list[str]) -> None:
    matches = TopicPattern(text).matches(NAMES)
    assert [name for name, is_match in zip(NAMES, matches, strict=True) if is_match] == found


@pytest.mark.parametrize(
    "text",
    ["a)(b", "a" * 1_001, "(?=T)T", "(?<!T)T", r"(T)\1", "(?>T)", "T++", r"T\Z", "(", "\ud800"],
)
def test_k05_a_pattern_that_re2_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        TopicPattern(text)
    assert 0 < len(str(caught.value)) < 300

"""Expressions and properties for hypothesis: valid and invalid ones, with odd values."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
STRINGS = st.sampled_from(["x", "xy", "", "1", "true", "it's", "ä"])
NUMBERS = st.sampled_from(
    ["0", "1", "5", "7L", "2147483648", "1.0", "1.5", ".5", "1e3", "5E-1", "0.0", ".0", "0e1"]
)
VALUES = st.one_of(
    st.sampled_from(
        ["1", "5", "01", "1.0", " 2 ", "x", "xy", "true", "FALSE", "NaN", "-0.0", "1e400"]
    ),
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.floats().map(str),
    st.text("+-0123456789.eEdfxy \t", max_size=6),
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    texts = STRINGS.map(quoted)
    sign = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    word = st.sampled_from(["CONTAINS", "NOT CONTAINS", "STARTSWITH", "NOT ENDSWITH"])
    return st.one_of(
        st.builds("{} {} {}".format, inner, sign, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("{} {} {}".format, inner, word, texts),
        st.builds("{} {}".format, inner, st.sampled_from(["IS NULL", "IS NOT NULL"])),
        st.builds(
            "{} {} {} AND {}".format,
            inner,
            st.sampled_from(["BETWEEN", "NOT BETWEEN"]),
            inner,
            inner,
        ),
        st.builds("{} {} ({}, {})".format, NAMES, st.sampled_from(["IN", "NOT IN"]), texts, texts),
        st.builds("{} {}".format, st.sampled_from(["NOT", "-", "+"]), inner),
        st.builds("({})".format, inner),
    )


LEAVES = st.one_of(NAMES, NUMBERS, STRINGS.map(quoted), st.sampled_from(["TRUE", "FALSE", "NULL"]))
EXPRESSIONS = st.recursive(LEAVES, _combined, max_leaves=12)
ROWS = st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=8)

"""Sorted names are those of a list that is sorted anew, whatever came and went before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.topics.listing import SortedNames

tables = st.lists(st.sets(st.text("abcX", min_size=1, max_size=3), max_size=12), max_size=8)


@given(tables)
def test_b01_names_are_sorted_over_any_changes(names: list[set[str]]) -> None:
    kept = SortedNames(lambda name: "X" not in name)
    for table in names:
        assert list(kept.of(table)) == sorted(name for name in table if "X" not in name)

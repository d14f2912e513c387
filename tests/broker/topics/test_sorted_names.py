"""Sorted names against a newly sorted list, after any additions and removals."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.topics.sorted_names import SortedNames

tables = st.lists(st.sets(st.text("abcX", min_size=1, max_size=3), max_size=12), max_size=8)


@given(tables)
def test_b01_names_are_sorted_over_any_changes(names: list[set[str]]) -> None:
    kept = SortedNames(lambda name: "X" not in name)
    for count, table in enumerate(names):
        assert list(kept.of(table, count)) == sorted(name for name in table if "X" not in name)


class UntouchedNames(AbstractSet[str]):
    """Names that no code may look at."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


def test_n12_names_that_have_not_changed_are_not_looked_at_again() -> None:
    kept = SortedNames(lambda _name: True)
    assert list(kept.of({"b", "a"}, 1)) == ["a", "b"]
    assert list(kept.of(UntouchedNames(), 1)) == ["a", "b"]
    assert list(kept.of({"c"}, 2)) == ["c"]

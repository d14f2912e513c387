"""Sorted names of all topics, kept between lists.

State: the sorted names, in memory. Sorting 100,000 names takes 45 ms; adding new names takes a
tenth of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet


class SortedNames:
    """The names of the last call for which `is_wanted` is true, sorted."""

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._seen: set[str] = set()
        self._sorted: list[str] = []
        self._change_count: int | None = None

    def of(self, names: AbstractSet[str], change_count: int) -> Sequence[str]:
        """Returns the wanted names of `names`, sorted. The caller must not change the result.

        Returns the last result again if `change_count` is unchanged.
        """
        if change_count == self._change_count:
            return self._sorted
        self._change_count = change_count
        gone, new = self._seen - names, names - self._seen
        if gone or new:
            self._take_in(gone, new)
        return self._sorted

    def _take_in(self, gone: Collection[str], new: Collection[str]) -> None:
        self._seen -= set(gone)
        self._seen |= set(new)
        kept = [name for name in self._sorted if name in self._seen] if gone else self._sorted
        # Sorting nearly sorted names is fast.
        self._sorted = sorted([*kept, *filter(self._is_wanted, new)])

"""The text of a table, of which a save encodes only the entries that have changed.

It is kept in blocks of entries by name. A change makes one block again from the texts of its
entries, and leaves the others. So a change costs the same whatever the size of the table, but for
joining the blocks and handing them to the disk. Lives in memory: a crash leaves what was saved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocketpy_broker.services.config_files.json_text import field_text

Entry = TypeVar("Entry")
# A block is split when it has twice as many. So many topics are some 60 kB.
BLOCK_ENTRIES = 256
# Fields of the table are a line each, two deep in the file.
_LINE = "\n\t\t"
# Stands between two entries and nowhere in one: lines in there are deeper, and strings have none.
# Its quote is the first of the name behind it, so a block lacks the one before its first name.
_BETWEEN = b',\n\t\t"'


@dataclass(frozen=True, slots=True)
class _Block:
    """Some entries: their names, sorted, and their texts."""

    names: Sequence[str]
    text: bytes


class TableText(Generic[Entry]):
    """A table as it stands in its file. It never changes itself, so a failed save costs nothing.

    `encode` gives the JSON of one entry.
    """

    def __init__(self, encode: Callable[[Entry], object], blocks: Sequence[_Block] = ()) -> None:
        self._encode = encode
        self._blocks = blocks
        self._first_names = [block.names[0] for block in blocks]

    def with_changes(self, changes: Mapping[str, Entry | None]) -> TableText[Entry]:
        """Returns the table with these entries, and without those that are None. Encodes no others."""
        by_block: dict[int, dict[str, Entry | None]] = {}
        for name, entry in changes.items():
            number = max(bisect_right(self._first_names, name) - 1, 0)
            by_block.setdefault(number, {})[name] = entry
        blocks = list(self._blocks)
        # From the last on, since there may be more or fewer blocks behind a changed one.
        for number in sorted(by_block, reverse=True):
            blocks[number : number + 1] = self._changed(
                blocks[number : number + 1], by_block[number]
            )
        return TableText(self._encode, blocks)

    def _changed(
        self, old: Sequence[_Block], changes: Mapping[str, Entry | None]
    ) -> Iterator[_Block]:
        """What comes in the place of a block; of none, if the table is empty."""
        texts: dict[str, bytes] = {}
        for block in old:
            texts.update(zip(block.names, block.text.split(_BETWEEN), strict=True))
        for name, entry in changes.items():
            if entry is None:
                texts.pop(name, None)
            else:
                texts[name] = field_text(name, self._encode(entry), _LINE)[1:].encode("ascii")
        names = sorted(texts)
        count = max(len(names) // BLOCK_ENTRIES, 1)
        size = max(-(-len(names) // count), 1)
        for start in range(0, len(names), size):
            own = names[start : start + size]
            yield _Block(own, _BETWEEN.join([texts[name] for name in own]))

    def parts(self) -> Iterator[bytes]:
        """Yields the JSON of the table, to be joined."""
        if not self._blocks:
            yield b"{}"
            return
        before = b'{\n\t\t"'
        for block in self._blocks:
            yield before
            yield block.text
            before = _BETWEEN
        yield b"\n\t}"


class TextKeeper(Generic[Entry]):
    """Keeps the text of a table that changes, and the names that the text does not have yet.

    Names belong to the loop; `text`, what is left of `loaded`, and what `telling` returns, to the
    save that runs, if any.
    """

    def __init__(self, encode: Callable[[Entry], object]) -> None:
        self.text = TableText(encode)
        self._loaded: dict[str, Entry] = {}
        self._changed: set[str] = set()
        self._telling: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """True if the entry has changed since `telling` was called."""
        return name in self._changed

    def loaded(self, entries: Mapping[str, Entry]) -> None:
        """The table has these from the start; call it before anything changes.

        Their text is made by the first save, where no name of a large table holds up the loop.
        """
        self._loaded.update(entries)

    def changed(self, names: Iterable[str]) -> None:
        """The table has other entries of these names now, or none."""
        self._changed.update(names)

    def telling(self, entries: Mapping[str, Entry]) -> Callable[[], TableText[Entry]]:
        """What brings the text up to these entries, and returns it; the caller saves it.

        If that never comes to its end, nothing is forgotten: the next one tells it again.
        """
        self._telling |= self._changed
        self._changed.clear()
        changes = {name: entries.get(name) for name in self._telling}

        def tell() -> TableText[Entry]:
            self.text = self.text.with_changes({**self._loaded, **changes})
            self._loaded = {}
            self._telling.clear()
            return self.text

        return tell

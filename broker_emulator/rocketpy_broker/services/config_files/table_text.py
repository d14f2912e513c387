"""Text of a table, updated by encoding only the changed entries.

The text is kept in memory, in blocks of entries by name. A change rebuilds one block from the texts
of its entries. The table size affects only the join of the blocks and the write to disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocketpy_broker.services.config_files.json_text import field_text

Entry = TypeVar("Entry")
# A block is split at twice this size. A block of 256 topics has about 60 kB.
BLOCK_ENTRIES = 256
# Each field of the table is one line, indented by two tabs.
_LINE = "\n\t\t"
# Separates two entries and occurs in none: their lines are indented deeper, and strings have no
# line feed. Its quote starts the next name, so a block lacks the quote before its first name.
_BETWEEN = b',\n\t\t"'


@dataclass(frozen=True, slots=True)
class _Block:
    """Some entries: their sorted names, and their texts."""

    names: Sequence[str]
    text: bytes


class TableText(Generic[Entry]):
    """The text of a table in its file; immutable, so a failed save needs no repair.

    `encode` returns the JSON of an entry.
    """

    def __init__(self, encode: Callable[[Entry], object], blocks: Sequence[_Block] = ()) -> None:
        self._encode = encode
        self._blocks = blocks
        self._first_names = [block.names[0] for block in blocks]

    def with_changes(self, changes: Mapping[str, Entry | None]) -> TableText[Entry]:
        """Returns the table with the changed entries; None removes an entry."""
        by_block: dict[int, dict[str, Entry | None]] = {}
        for name, entry in changes.items():
            number = max(bisect_right(self._first_names, name) - 1, 0)
            by_block.setdefault(number, {})[name] = entry
        blocks = list(self._blocks)
        # Last block first, since a change can shift the numbers of later blocks.
        for number in sorted(by_block, reverse=True):
            blocks[number : number + 1] = self._changed(
                blocks[number : number + 1], by_block[number]
            )
        return TableText(self._encode, blocks)

    def _changed(
        self, old: Sequence[_Block], changes: Mapping[str, Entry | None]
    ) -> Iterator[_Block]:
        """Yields the blocks that replace a block; `old` is empty for an empty table."""
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
        """Yields the parts of the table's JSON, in order."""
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
    """The text of a changing table, and the names of changes that the text lacks.

    Only the event loop uses the names. Only a running save uses `text`, the entries of `loaded`
    and the function that `telling` returns.
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
        """Adds the entries that the table has from the start; called before any change.

        The first save encodes them in its thread, so a large table does not block the event loop.
        """
        self._loaded.update(entries)

    def changed(self, names: Iterable[str]) -> None:
        """Notes that entries of these names were changed or removed."""
        self._changed.update(names)

    def telling(self, entries: Mapping[str, Entry]) -> Callable[[], TableText[Entry]]:
        """Returns a function that updates the text to these entries and returns it.

        The caller saves the text. If the function fails, the next one repeats its changes.
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

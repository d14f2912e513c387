"""Table of named entries in its own file, changed by requests.

A change is saved first, and only then visible to readers. So a crash undoes only changes that no
caller was notified of. A save takes a copy of the table: half a millisecond for 65,000 entries. Its
thread encodes the entries that the previous save did not hold. Changes during a save wait, and
share the next save. Noted entries are visible at once, and saved with the next change or at the
next interval. A crash before that loses them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.data_version import DATA_VERSION, FileVersion
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.config_files.json_text import ENTRY_LINE, field_text
from rocketpy_broker.services.config_files.saver import SavePlan, Saver

Entry = TypeVar("Entry")


@dataclass(slots=True)
class _Change(Generic[Entry]):
    """A change of one entry; `refusal` is the error of `make`."""

    name: str
    make: Callable[[Entry | None], Entry | None]
    refusal: BrokerError | None = None


class ConfigTable(Generic[Entry]):
    """Immutable entries by name.

    The file has the entries in `field`. It also has the data version, and `other_fields` of the
    caller. `encode` returns the JSON of an entry.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        field: str,
        encode: Callable[[Entry], object],
        other_fields: Collection[str] = (),
    ) -> None:
        self._file = ConfigFile(path, (DATA_VERSION, field, *other_fields))
        self._clock = clock
        self._field = field
        self._encode = encode
        # The entries of the last save, and their texts.
        self._encoded: Mapping[str, Entry] = {}
        self._texts: dict[str, bytes] = {}
        self._entries: dict[str, Entry] = {}
        self.version = FileVersion()
        self.saver = Saver(self)
        # Called with the names of changed entries when the changes are saved and visible.
        self.on_change: Callable[[Collection[str]], None] = lambda _names: None
        # Returns the file's other fields, for a table without the entries of these names.
        self.others_of: Callable[[Collection[str]], Mapping[str, object]] = lambda _gone: {}
        self._changes: list[_Change[Entry]] = []
        self._noted_count = 0
        self._saved_count = 0
        # Grows with each visible change.
        self.change_count = 0

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The present entries; always the same object."""
        return self._entries

    def load(
        self,
        decode: Callable[[str, object], Entry],
        take_others: Callable[[Mapping[str, Any]], None] = lambda _content: None,
    ) -> Mapping[str, Entry] | None:
        """Takes in the file's entries and returns them; None if there is no file.

        `take_others` takes in the file's other fields. Both raise ValueError for a broken file.
        Raises ConfigFileError.
        """

        def decode_all(content: Mapping[str, Any]) -> tuple[FileVersion, dict[str, Entry]]:
            take_others(content)
            table = as_object(content.get(self._field))
            version = FileVersion.from_json(content.get(DATA_VERSION))
            return version, {name: decode(name, entry) for name, entry in table.items()}

        loaded = self._file.load(decode_all)
        if loaded is None:
            return None
        self.version, entries = loaded
        self.take_in(entries)
        return entries

    def take_in(self, entries: Mapping[str, Entry]) -> None:
        """Adds entries without a save: the file has them, or every start creates them."""
        self._entries.update(entries)
        self.change_count += 1

    async def change(self, name: str, make: Callable[[Entry | None], Entry | None]) -> None:
        """Replaces an entry by the result of `make`; None: no entry. Durable on return.

        An entry that equals the old one is no change: no new version and no save. Raises the
        BrokerError of `make`, or OSError; then nothing has changed. After a cancellation of the
        caller, the change may still be made.
        """
        await self.change_all({name: make})

    async def change_all(self, makes: Mapping[str, Callable[[Entry | None], Entry | None]]) -> None:
        """Changes several entries in one save, as `change` does.

        Raises the first BrokerError in the order of `makes`; the accepted changes remain.
        """
        changes = [_Change(name, make) for name, make in makes.items()]
        self._changes += changes
        await self.saver.save()
        for change in changes:
            if change.refusal is not None:
                raise change.refusal

    async def set_all(self, entries: Mapping[str, Entry | None]) -> None:
        """Sets entries in one save, as `change` does; None removes one."""

        def make(entry: Entry | None) -> Callable[[Entry | None], Entry | None]:
            return lambda _old: entry

        if entries:
            await self.change_all({name: make(entry) for name, entry in entries.items()})

    def note(self, entries: Mapping[str, Entry]) -> None:
        """Adds entries that may be saved later."""
        self._entries.update(entries)
        self.change_count += 1
        self.version = self.version.next(self._clock.now_ms())
        self._noted_count += 1

    def plan_save(self) -> SavePlan | None:
        """Returns a save of all waiting changes and noted entries; None if there are none."""
        changes, self._changes = self._changes, []
        changed: dict[str, Entry | None] = {}
        version = self.version
        for change in changes:
            old = changed[change.name] if change.name in changed else self._entries.get(change.name)
            try:
                new = change.make(old)
            except BrokerError as error:
                change.refusal = error
                continue
            if new != old:
                changed[change.name] = new
                version = version.next(self._clock.now_ms())
        noted_count = self._noted_count
        if not changed and noted_count == self._saved_count:
            return None
        entries = self._entries.copy()
        _apply(entries, changed)
        gone = [name for name in changed if name in self._entries and name not in entries]
        content = {DATA_VERSION: version.to_json(), **self.others_of(gone)}

        def run() -> None:
            self._file.save({**content, self._field: self._texts_of(entries)})

        def saved() -> None:
            _apply(self._entries, changed)
            self.change_count += 1
            # Entries may have been noted during the save.
            noted = self._noted_count - noted_count
            self.version = version if not noted else version.next(self._clock.now_ms())
            self._saved_count = noted_count
            if changed:
                self.on_change(changed.keys())

        return SavePlan(run, saved)

    def _texts_of(self, entries: Mapping[str, Entry]) -> Iterator[bytes]:
        """Returns the entries' texts, sorted by name. Only the thread of the save may call it."""
        texts = {}
        for name in sorted(entries):
            if self._encoded.get(name) is entries[name]:
                texts[name] = self._texts[name]
            else:
                texts[name] = field_text(name, self._encode(entries[name]), ENTRY_LINE)
        self._encoded, self._texts = entries, texts
        return iter(texts.values())


def _apply(entries: dict[str, Entry], changed: Mapping[str, Entry | None]) -> None:
    for name, entry in changed.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry

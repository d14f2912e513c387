"""A table of named entries in a file of its own, changed by requests.

A change is made to the table's text, the text is saved, and only then the table shows it: what
readers see has been saved, and a crash takes back only what nobody was told of. Of a large table
nothing is copied or encoded but what changes. Changes that come while a save runs wait, and share
the next. What is merely noted shows at once and is saved with the next change or at the next
interval, so a crash before costs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.data_version import DataVersion
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.saver import SavePlan, Saver
from rocketpy_broker.services.config_files.table_text import TextKeeper

Entry = TypeVar("Entry")
DATA_VERSION = "dataVersion"


@dataclass(slots=True)
class _Change(Generic[Entry]):
    """What becomes of one entry; `refusal` is what `make` has raised."""

    name: str
    make: Callable[[Entry | None], Entry | None]
    refusal: BrokerError | None = None


class ConfigTable(Generic[Entry]):
    """Entries, which are never changed themselves, by name.

    In the file they are `field`, beside the data version; `encode` gives the JSON of one.
    """

    def __init__(
        self, file: ConfigFile, clock: Clock, field: str, encode: Callable[[Entry], object]
    ) -> None:
        self._file = file
        self._clock = clock
        self._field = field
        self._entries: dict[str, Entry] = {}
        self.version = DataVersion()
        self.saver = Saver(self)
        # Called with the names of entries whose changes have been saved, and show.
        self.on_change: Callable[[Collection[str]], None] = lambda _names: None
        # The file's other fields, once the entries of these names are gone.
        self.others_of: Callable[[Collection[str]], Mapping[str, object]] = lambda _gone: {}
        self._changes: list[_Change[Entry]] = []
        self._keeper = TextKeeper(encode)
        self._noted_count = 0
        self._saved_count = 0
        # Grows with each change that the table shows.
        self.change_count = 0

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The table as it is now, always the same object."""
        return self._entries

    def take_in(self, entries: Mapping[str, Entry]) -> None:
        """Takes in entries that need not be saved: the file has them, or every start makes them."""
        self._entries.update(entries)
        self._keeper.loaded(entries)
        self.change_count += 1

    async def change(self, name: str, make: Callable[[Entry | None], Entry | None]) -> None:
        """Let an entry be what `make` makes of it; None stands for no entry. Durable on return.

        An entry that equals the old one is no change: no version, and nothing to save for it.
        `make` may raise BrokerError. Raises that, or OSError; then nothing has changed. The change
        may yet come when who waits for it is cancelled.
        """
        await self.change_all({name: make})

    async def change_all(self, makes: Mapping[str, Callable[[Entry | None], Entry | None]]) -> None:
        """Changes several entries in one save, as `change` does.

        Raises the first refusal, by name in the order of `makes`; the others have changed.
        """
        changes = [_Change(name, make) for name, make in makes.items()]
        self._changes += changes
        await self.saver.save()
        for change in changes:
            if change.refusal is not None:
                raise change.refusal

    def note(self, entries: Mapping[str, Entry]) -> None:
        """Takes in entries that may be saved later."""
        self._entries.update(entries)
        self._keeper.changed(entries)
        self.change_count += 1
        self.version = self.version.next(self._clock.now_ms())
        self._noted_count += 1

    def plan_save(self) -> SavePlan | None:
        """Returns all changes that wait, and what was noted."""
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
        tell = self._keeper.telling(self._entries)
        gone = [name for name in changed if changed[name] is None and name in self._entries]
        content = {DATA_VERSION: version.to_json(), **self.others_of(gone)}

        def run() -> None:
            text = tell().with_changes(changed)
            self._file.save({**content, self._field: text})
            self._keeper.text = text

        def saved() -> None:
            _apply(self._entries, changed)
            self.change_count += 1
            # Others may have been noted meanwhile.
            noted = self._noted_count - noted_count
            self.version = version if not noted else version.next(self._clock.now_ms())
            self._saved_count = noted_count
            if changed:
                self.on_change(changed.keys())

        return SavePlan(run, saved)


def _apply(entries: dict[str, Entry], changed: Mapping[str, Entry | None]) -> None:
    for name, entry in changed.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry

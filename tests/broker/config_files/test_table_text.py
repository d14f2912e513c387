"""Tables of which a save encodes only the changes: the file equals a full encoding."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files import table_text
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_text import field_text
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.config_files.table import DATA_VERSION, ConfigTable
from rocketpy_broker.services.config_files.table_text import TableText, TextKeeper
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager

NAMES = st.one_of(st.sampled_from("abcdefghij"), st.text(max_size=3))
# Strings that look like the separator of two entries, and objects with deeper lines.
TEXTS = st.sampled_from(['",\n\t\t"', ',\n\t\t"a":', "é\ud800", "\\", ""])
ENTRIES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(NAMES | TEXTS, inner, max_size=3)
    ),
    max_leaves=6,
).map(lambda value: {"value": value})
CHANGES = st.dictionaries(NAMES, st.one_of(st.none(), ENTRIES), max_size=6)
MANY = 2_000


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a small block size, so that few entries fill several blocks."""
    monkeypatch.setattr(table_text, "BLOCK_ENTRIES", 2)


def same(value: object) -> object:
    return value


def whole(table: Mapping[str, object]) -> str:
    """Returns the table as one encoding of all entries, in order."""
    fields = [field_text(name, table[name], "\n\t\t") for name in sorted(table)]
    return "{\n\t\t" + ",\n\t\t".join(fields) + "\n\t}" if fields else "{}"


def written(text: TableText[Any]) -> str:
    return b"".join(text.parts()).decode("ascii")


@pytest.mark.usefixtures("small_blocks")
@given(steps=st.lists(CHANGES, max_size=12))
def test_b01_any_changes_give_the_bytes_of_a_whole_encoding(
    steps: list[dict[str, dict[str, object] | None]],
) -> None:
    text: TableText[object] = TableText(same)
    table: dict[str, object] = {}
    before = []
    for changes in steps:
        before.append((text, written(text)))
        text = text.with_changes(changes)
        table.update(changes)
        table = {name: entry for name, entry in table.items() if entry is not None}
        assert written(text) == whole(table)
        assert list(json.loads(written(text))) == sorted(table)
    # A failed save goes back to an earlier text, which is unchanged.
    assert all(written(old) == then for old, then in before)


def config_table(folder: Path, table: Mapping[str, object]) -> ConfigTable[object]:
    file = ConfigFile(folder / "x.json", (DATA_VERSION, "table"))
    made = ConfigTable(file, ManualClock(), "table", same)
    made.take_in(table)
    return made


KINDS = st.sampled_from(["change", "note", "refused by the disk"])


@pytest.mark.usefixtures("small_blocks")
@given(
    loaded=st.dictionaries(NAMES, ENTRIES, max_size=8), steps=st.lists(st.tuples(KINDS, CHANGES))
)
def test_b01_a_file_holds_what_its_table_shows_also_behind_saves_that_failed(
    loaded: dict[str, object], steps: list[tuple[str, dict[str, object | None]]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.json"
        in_its_way = path.with_name(path.name + ".tmp")
        table = config_table(path.parent, loaded)
        shown = dict(loaded)
        for kind, changes in steps:
            kept = {key: entry for key, entry in changes.items() if entry is not None}
            if kind == "note":
                table.note(kept)
                shown.update(kept)
            elif kind == "change":
                change(table, changes)
                shown = {key: shown[key] for key in shown if key not in changes} | kept
            else:
                in_its_way.mkdir()
                with contextlib.suppress(IsADirectoryError):
                    change(table, changes)
                in_its_way.rmdir()
            assert table.entries == shown
        table.note({})
        save_now(table)
        version = json.dumps(table.version.to_json(), indent=0).replace(" ", "").replace("\n", "")
        fields = version[1:-1].replace(",", ",\n\t\t")
        expected = f'{{\n\t"dataVersion":{{\n\t\t{fields}\n\t}},\n\t"table":{whole(shown)}\n}}'
        assert path.read_text() == expected
        table.saver.close()


def change(table: ConfigTable[object], changes: Mapping[str, object | None]) -> None:
    makes = {name: becomes(entry) for name, entry in changes.items()}
    asyncio.run(table.change_all(makes))


def becomes(entry: object | None) -> Callable[[object], object | None]:
    return lambda _old: entry


def test_b01_what_was_loaded_is_saved_behind_a_save_that_broke_off(tmp_path: Path) -> None:
    def encode(entry: object) -> object:
        if is_out_of_memory:
            raise MemoryError
        return entry

    file = ConfigFile(tmp_path / "x.json", (DATA_VERSION, "table"))
    table = ConfigTable(file, ManualClock(), "table", encode)
    table.take_in({"loaded": {"a": 1}})
    is_out_of_memory = True
    with pytest.raises(MemoryError):
        change(table, {"b": {"b": 2}})
    is_out_of_memory = False
    change(table, {"c": {"c": 3}})
    saved = json.loads((tmp_path / "x.json").read_text())["table"]
    assert saved == {"loaded": {"a": 1}, "c": {"c": 3}}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list of the names of topics that are encoded from now on."""
    names: list[str] = []
    real = TopicConfig.to_json

    def to_json(config: TopicConfig) -> dict[str, object]:
        names.append(config.topic)
        return real(config)

    monkeypatch.setattr(TopicConfig, "to_json", to_json)
    return names


def test_b01_a_topic_among_many_is_created_by_encoding_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = counted(monkeypatch)
    topics = TopicConfigManager(tmp_path, ManualClock(), "DefaultCluster", "broker-a")
    topics.load()
    asyncio.run(topics.make_retry_topics(TopicConfig(f"T{number}") for number in range(MANY)))
    assert len(encoded) >= MANY
    # After a start they are encoded once, by the first save.
    again = TopicConfigManager(tmp_path, ManualClock(), "DefaultCluster", "broker-a")
    again.load()
    asyncio.run(again.create(TopicConfig("First")))
    for manager in (topics, again):
        encoded.clear()
        before = {id(part): part for part in manager._table._keeper.text.parts()}
        asyncio.run(manager.create(TopicConfig("T5-and-a-half")))
        asyncio.run(manager.delete("T6"))
        assert encoded == ["T5-and-a-half"]
        # The texts of other blocks are not rebuilt either, except for the neighbours.
        new = [part for part in manager._table._keeper.text.parts() if id(part) not in before]
        assert len(before) > MANY // table_text.BLOCK_ENTRIES // 2
        assert len(new) <= 2


def test_b05_a_save_of_offsets_encodes_those_that_were_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = ConsumerOffsetManager(tmp_path, ManualClock())
    for number in range(MANY):
        offsets.commit("g", f"T{number}", 0, number)
    save_now(offsets)
    encoded = []
    real = offsets._keeper.text._encode

    def encode(queues: dict[int, int]) -> object:
        encoded.append(queues[0])
        return real(queues)

    monkeypatch.setattr(offsets._keeper.text, "_encode", encode)
    offsets.commit("g", "T7", 0, 70)
    for topic in ("T8", "T9"):
        asyncio.run(offsets.delete_topic(topic))
    offsets.commit("g", "T9", 0, 90)
    save_now(offsets)
    assert sorted(encoded) == [70, 90]
    table = json.loads((tmp_path / "consumerOffset.json").read_text())["offsetTable"]
    assert table == {
        f"T{number}@g": {"0": number * 10 if number in (7, 9) else number}
        for number in range(MANY)
        if number != 8
    }


class Looked(dict[str, int]):
    """A table that counts its lookups."""

    count = 0

    def get(self, name: str, default: object = None) -> Any:
        self.count += 1
        return super().get(name, default)


def test_b09_a_first_save_looks_at_what_has_changed_since_the_start_and_holds_all() -> None:
    table = Looked({f"e{number}": number for number in range(MANY)})
    keeper = TextKeeper(lambda number: number)
    keeper.loaded(table)
    table["e1"] = -1
    del table["e2"]
    keeper.changed(["e1", "e2"])
    tell = keeper.telling(table)
    # Belongs to the next save.
    table["e3"] = -3
    keeper.changed(["e3"])
    assert table.count == 2
    # The text has the entries of the moment of its creation.
    assert json.loads(b"".join(tell().parts())) == {**table, "e3": 3}
    assert json.loads(b"".join(keeper.telling(table)().parts())) == table
    assert table.count == 3

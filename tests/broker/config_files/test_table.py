"""Tables and their saves: the file equals the table at the start of its last save."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files.json_text import ENTRY_LINE, field_text
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.config_files.table import ConfigTable
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager

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
MANY = 2_000
CHANGES = st.dictionaries(NAMES, st.one_of(st.none(), ENTRIES), max_size=6)


def same(value: object) -> object:
    return value


def whole(table: Mapping[str, object]) -> str:
    """Returns the table as one encoding of all entries, in order."""
    fields = [field_text(name, table[name], ENTRY_LINE).decode("ascii") for name in sorted(table)]
    return "{\n\t\t" + ",\n\t\t".join(fields) + "\n\t}" if fields else "{}"


def config_table(folder: Path, table: Mapping[str, object]) -> ConfigTable[object]:
    made = ConfigTable(folder / "x.json", ManualClock(), "table", same)
    made.take_in(table)
    return made


KINDS = st.sampled_from(["change", "note", "refused by the disk"])


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
        version = (
            json.dumps(table.version.to_json(), indent=0, sort_keys=True)
            .replace(" ", "")
            .replace("\n", "")
        )
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

    table = ConfigTable(tmp_path / "x.json", ManualClock(), "table", encode)
    table.take_in({"loaded": {"a": 1}})
    is_out_of_memory = True
    with pytest.raises(MemoryError):
        change(table, {"b": {"b": 2}})
    is_out_of_memory = False
    change(table, {"c": {"c": 3}})
    saved = json.loads((tmp_path / "x.json").read_text())["table"]
    assert saved == {"loaded": {"a": 1}, "c": {"c": 3}}


def test_b01_an_entry_among_many_is_saved_by_encoding_it_alone(tmp_path: Path) -> None:
    encoded: list[object] = []

    def encode(entry: object) -> object:
        encoded.append(entry)
        return entry

    table = ConfigTable(tmp_path / "x.json", ManualClock(), "table", encode)
    change(table, {f"T{number}": number for number in range(MANY)})
    assert len(encoded) == MANY
    # After a start they are encoded once, by the first save.
    again = ConfigTable(tmp_path / "x.json", ManualClock(), "table", encode)
    again.take_in(table.entries)
    change(again, {"First": 1})
    for each in (table, again):
        encoded.clear()
        change(each, {"T5-and-a-half": 5.5})
        change(each, {"T6": None})
        assert encoded == [5.5]


def test_b01_a_save_is_encoded_in_its_thread_from_the_table_of_its_start(tmp_path: Path) -> None:
    encoders = set()

    def encode(entry: object) -> object:
        encoders.add(threading.get_ident())
        return entry

    table = ConfigTable(tmp_path / "x.json", ManualClock(), "table", encode)
    table.take_in({"loaded": 1, "other": 1})
    table.note({"noted": 2})
    plan = table.plan_save()
    assert plan is not None
    assert encoders == set()
    table.note({"loaded": 3, "later": 3})
    thread = threading.Thread(target=plan.run)
    thread.start()
    thread.join()
    plan.saved()
    assert len(encoders - {threading.get_ident()}) == 1
    saved = json.loads((tmp_path / "x.json").read_bytes())["table"]
    assert saved == {"loaded": 1, "other": 1, "noted": 2}
    save_now(table)
    saved = json.loads((tmp_path / "x.json").read_bytes())["table"]
    assert saved == {"loaded": 3, "other": 1, "noted": 2, "later": 3}


def test_b05_a_save_of_offsets_holds_the_commits_of_its_start(tmp_path: Path) -> None:
    def saved() -> object:
        return json.loads((tmp_path / "consumerOffset.json").read_bytes())["offsetTable"]

    offsets = ConsumerOffsetManager(tmp_path, ManualClock())
    for topic in ("T", "U", "V"):
        offsets.commit("g", topic, 0, 1)
    plan = offsets.plan_save()
    assert plan is not None
    offsets.commit("g", "T", 1, 7)
    for topic in ("U", "V"):
        asyncio.run(offsets.delete_topic(topic))
    offsets.commit("g", "V", 0, 9)
    plan.run()
    plan.saved()
    assert saved() == {"T@g": {"0": 1}, "U@g": {"0": 1}, "V@g": {"0": 1}}
    save_now(offsets)
    assert saved() == {"T@g": {"0": 1, "1": 7}, "V@g": {"0": 9}}

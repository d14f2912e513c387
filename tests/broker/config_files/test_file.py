"""Configuration files: the backup, a crash at every step, and kept foreign content."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_int, as_object
from rocketpy_proto.remoting import RemotingFormatError
from rocketpy_proto.remoting.json_text import parse_json
from tests.support.broker import rocketmq_files

OLD = {"table": {"a": 1}}
NEW = {"table": {"a": 2}}
STEPS = ("replace", "rename", "fsync", "open")


class CrashError(BaseException):
    """The end of the process, which no code can handle."""


def decode(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table of numbers."""
    table = as_object(content.get("table"))
    return {"table": {key: as_int(number) for key, number in table.items()}}


def config_file(folder: Path) -> ConfigFile:
    return ConfigFile(folder / "x.json", ("table",))


def load(folder: Path) -> dict[str, Any] | None:
    return config_file(folder).load(decode)


def reaches(step: int, error: BaseException, act: Callable[[], object]) -> bool:
    """Runs `act` with a file system that fails at call `step`; False if it made fewer."""
    calls = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                raise error
            return function(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrap(getattr(os, name)))
        try:
            act()
        except (CrashError, OSError, ConfigFileError):
            assert calls >= step
    return calls >= step


def test_b01_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    config_file(tmp_path).save(OLD)
    assert load(tmp_path) == OLD


def test_b01_files_are_strict_json_in_the_shape_of_fastjson(tmp_path: Path) -> None:
    content = {
        "b": {"10": 1, "9": [True, None, {"z": 1}]},
        "a": {"z": {}, "é\ud800": "x", "none": None},
        "c": {"none": None},
        "none": None,
    }
    config_file(tmp_path).save(content)
    assert (tmp_path / "x.json").read_text(encoding="ascii") == (
        '{\n\t"a":{\n\t\t"z":{},\n\t\t"\\u00e9\\ud800":"x"\n\t},\n'
        '\t"b":{"9":[true,null,{"z":1}],"10":1},\n\t"c":{}\n}'
    )


@pytest.mark.parametrize("text", [rocketmq_files.TOPICS, rocketmq_files.GROUPS])
def test_b01_a_file_of_rocketmq_is_saved_as_it_was_but_for_quoted_keys(
    tmp_path: Path, text: str
) -> None:
    content = parse_json(text.encode(), "file")
    assert isinstance(content, dict)
    config_file(tmp_path).save(content)
    saved = (tmp_path / "x.json").read_text()
    assert json.loads(saved) == content
    quoted = text.replace("{1:2\n\t}", '{"1":2}')
    assert sorted(saved.replace(",", "").split()) == sorted(quoted.replace(",", "").split())


@pytest.mark.parametrize(
    "text",
    [
        rocketmq_files.TOPICS,
        rocketmq_files.CONSUMER_OFFSETS,
        rocketmq_files.DELAY_OFFSETS,
        rocketmq_files.GROUPS,
    ],
    ids=["topics", "consumer offsets", "delay offsets", "groups"],
)
def test_b03_a_file_cut_at_any_character_is_refused(text: str) -> None:
    assert parse_json(text.encode(), "file")
    for end in range(len(text)):
        with pytest.raises(RemotingFormatError):
            parse_json(text[:end].encode(), "file")


def test_b01_unknown_fields_are_written_back_and_derived_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{'table':{1:2},'derived':[3],newer:4}".replace("newer", "5"))
    file = ConfigFile(tmp_path / "x.json", ("table", "derived"))
    assert file.load(decode) == {"table": {"1": 2}}
    file.save(NEW)
    assert json.loads((tmp_path / "x.json").read_text()) == {**NEW, "5": 4}


@pytest.mark.parametrize("error", [CrashError(), OSError("full")], ids=["crash", "error"])
@pytest.mark.parametrize("backup", [False, True])
def test_b03_a_save_that_ends_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, error: BaseException, *, backup: bool
) -> None:
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        folder.mkdir()
        if backup:
            config_file(folder).save({"table": {"a": 0}})
        config_file(folder).save(OLD)
        if not reaches(step, error, partial(config_file(folder).save, NEW)):
            break
        assert load(folder) in (OLD, NEW)
        # What was loaded can be saved, and then loaded again.
        config_file(folder).save(NEW)
        assert load(folder) == NEW
    assert step == 9


@pytest.mark.parametrize("error", [CrashError(), OSError("full")], ids=["crash", "error"])
@pytest.mark.parametrize("torn", [None, "", '{"table":{"a":2}'], ids=["missing", "empty", "torn"])
def test_b03_a_load_that_ends_at_any_step_keeps_backup_and_broken_file(
    tmp_path: Path, error: BaseException, torn: str | None
) -> None:
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        folder.mkdir()
        (folder / "x.json.bak").write_text(json.dumps(OLD))
        if torn is not None:
            (folder / "x.json").write_text(torn)
        if not reaches(step, error, partial(load, folder)):
            break
        assert json.loads((folder / "x.json.bak").read_text()) == OLD
        if torn is not None:
            texts = {path.read_text() for path in folder.iterdir()}
            assert torn in texts
        assert load(folder) == OLD
    assert step > 3


def test_b03_a_file_cut_at_any_byte_is_answered_by_its_backup(tmp_path: Path) -> None:
    whole = rocketmq_files.CONSUMER_OFFSETS.replace("offsetTable", "table").encode()
    path = tmp_path / "x.json"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        (tmp_path / "x.json.bak").write_text(json.dumps(OLD))
        assert load(tmp_path) == OLD
        assert (tmp_path / "x.json.broken").read_bytes() == whole[:end]
        assert json.loads(path.read_text()) == OLD


def test_b03_a_file_cut_at_any_byte_without_backup_is_an_error_and_stays(tmp_path: Path) -> None:
    whole = json.dumps(OLD).encode()
    path = tmp_path / "x.json"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(ConfigFileError, match=r"x\.json.*repair the file, or move both away"):
            load(tmp_path)
        assert path.read_bytes() == whole[:end]
        assert list(tmp_path.iterdir()) == [path]


def test_b03_a_broken_backup_is_an_error_and_both_stay(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    (tmp_path / "x.json.bak").write_text('{"table":{"a":"x"}}')
    with pytest.raises(ConfigFileError, match=r"x\.json"):
        load(tmp_path)
    assert (tmp_path / "x.json").read_text() == "{"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "text", ["[1]", "1", "null", '"x"', "\0" * 64, '{"table":[1]}', '{"table":{"a":"x"}}']
)
def test_b03_a_file_of_another_content_is_broken_too(tmp_path: Path, text: str) -> None:
    config_file(tmp_path).save(OLD)
    config_file(tmp_path).save(NEW)
    (tmp_path / "x.json").write_text(text)
    assert load(tmp_path) == OLD
    assert (tmp_path / "x.json.broken").read_text() == text


def test_b03_bytes_that_are_no_text_are_broken_too(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"table":{"\xff":1}}')
    with pytest.raises(ConfigFileError, match="decode"):
        load(tmp_path)


def test_b03_a_file_that_may_not_be_read_is_not_taken_for_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file(tmp_path).save(OLD)
    config_file(tmp_path).save(NEW)

    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.suffix == ".bak":
            return read_bytes(path)
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(ConfigFileError, match="Permission denied"):
            load(tmp_path)
    assert load(tmp_path) == NEW


def test_b03_the_latest_broken_file_is_kept(tmp_path: Path) -> None:
    for text in ("{1", "{2"):
        (tmp_path / "x.json.bak").write_text(json.dumps(OLD))
        (tmp_path / "x.json").write_text(text)
        load(tmp_path)
    assert (tmp_path / "x.json.broken").read_text() == "{2"

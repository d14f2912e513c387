"""Ends of the log at each start after a crash, as clients get them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rocketpy_broker.store.files.recoveries import RECOVERIES_MAX, Recoveries
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.disk_calls import before_call
from tests.support.store.messages import numbered, put_all
from tests.support.store.stores import OpenStore, crash

ENDS = [700, 500, 900]


def started(path: Path, log_end: int, *, abnormal: bool = True) -> Recoveries:
    recoveries = Recoveries(path)
    recoveries.started(log_end, abnormal=abnormal)
    return recoveries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recoveries"


def test_s5_each_start_behind_a_crash_is_a_recovery_and_no_other(open_store: OpenStore) -> None:
    first = open_store()
    first_id = first.recoveries.newest_id
    put_all(first, numbered(5))
    end = first.positions().log_end
    assert first.recoveries.log_end_since(first_id) is None
    first.close()
    clean = open_store()
    assert clean.recoveries.newest_id == first_id
    assert clean.recoveries.log_end_since(first_id) is None
    crash(clean)
    crashed = open_store()
    assert crashed.recoveries.newest_id not in {"", first_id}
    assert crashed.recoveries.log_end_since(first_id) == end
    assert crashed.recoveries.log_end_since(crashed.recoveries.newest_id) is None


def test_s5_a_start_that_is_killed_before_it_is_done_is_followed_by_a_recovery(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    first_id = store.recoveries.newest_id
    crash(store)
    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, "fsync", "*/rocketpy/recoveries.tmp", killed)
        with pytest.raises(KeyboardInterrupt):
            new_store().open()
    again = new_store()
    again.open()
    assert again.recoveries.newest_id != first_id


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_s5_the_lowest_end_behind_the_one_that_is_known_counts(path: Path) -> None:
    ids = [started(path, 0).newest_id]
    ids += [started(path, end).newest_id for end in ENDS]
    recoveries = started(path, 5, abnormal=False)
    assert recoveries.newest_id == ids[-1]
    assert [recoveries.log_end_since(each) for each in ids] == [500, 500, 900, None]
    assert recoveries.log_end_since("") is None
    assert recoveries.log_end_since("0" * 16) is None


def test_s5_the_newest_are_kept_and_older_ones_are_unknown(path: Path) -> None:
    ids = [started(path, end).newest_id for end in range(RECOVERIES_MAX + 2)]
    recoveries = started(path, 0, abnormal=False)
    ends = [recoveries.log_end_since(each) for each in ids]
    assert ends == [None, None, *range(3, RECOVERIES_MAX + 2), None]
    assert path.stat().st_size < 4096


def test_f5_a_flipped_bit_is_mended_from_the_other_copy(path: Path) -> None:
    for end in ENDS:
        newest_id = started(path, end).newest_id
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        assert started(path, 0, abnormal=False).newest_id == newest_id
        assert path.read_bytes() == data


@pytest.mark.parametrize("change", ["cut", "flips", "empty", "text"])
def test_f5_what_is_damaged_twice_is_begun_anew_and_said(
    path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    old_id = started(path, 700).newest_id
    data = path.read_bytes()
    flipped = bytes([data[0] ^ 1]) + data[1 : len(data) // 2]
    texts = {"cut": data[:-2], "flips": flipped * 2, "empty": b"", "text": b"\xff\n" * 20}
    path.write_bytes(texts[change])
    with caplog.at_level(logging.ERROR):
        recoveries = started(path, 500, abnormal=False)
    assert "recoveries is damaged and starts empty" in caplog.text
    assert recoveries.newest_id not in {"", old_id}
    assert recoveries.log_end_since(old_id) is None
    assert started(path, 0, abnormal=False).newest_id == recoveries.newest_id

"""Log files on a disk without space for them."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.log.checksums import SegmentChecksums
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.messages import numbered, put, read_all
from tests.support.store.stores import SEGMENT_BYTES


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*_: object) -> NoReturn:
    raise OSError(errno.EIO, "Input/output error")


def test_f07_a_disk_without_room_for_the_next_file_of_the_log_is_told_its_size(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Covers a disk with some free space: a log file is allocated at once."""
    said = rf"next file takes {SEGMENT_BYTES} bytes at once; .*--commit-log-segment-bytes"
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "create", no_space)
        with pytest.raises(StoreClosedError, match=said):
            put(store, numbered(1))
        patch.setattr(Segment, "create", broken)
        with pytest.raises(StoreClosedError) as refused:
            put(store, numbered(1))
    assert "at once" not in refused.value.remark
    put(store, numbered(1))
    assert read_all(store) == numbered(1)


def test_f07_a_log_without_room_for_the_next_checksums_ends_where_it_ended(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, [bytes(3000)])
    end = store.positions().log_end
    with monkeypatch.context() as patch:
        patch.setattr(SegmentChecksums, "reserve", no_space)
        with pytest.raises(StoreClosedError, match="nothing was stored"):
            put(store, [bytes(3000)])
    assert store.positions().log_end == end
    assert put(store, [bytes(3000)]) == SEGMENT_BYTES
    assert read_all(store) == [bytes(3000)] * 2

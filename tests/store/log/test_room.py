"""Log files on a disk without space for them."""

from __future__ import annotations

import errno

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.disk_calls import before_call, failing
from tests.support.store.messages import numbered, put, read_all
from tests.support.store.stores import SEGMENT_BYTES


def test_f07_a_disk_without_room_for_the_next_file_of_the_log_is_told_its_size(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Covers a disk with some free space: a log file is allocated at once."""
    said = rf"next file takes {SEGMENT_BYTES} bytes at once; .*--commit-log-segment-bytes"
    with monkeypatch.context() as patch:
        before_call(patch, "posix_fallocate", "*/commitlog.new", failing(errno.ENOSPC))
        with pytest.raises(StoreClosedError, match=said):
            put(store, numbered(1))
    with monkeypatch.context() as patch:
        before_call(patch, "posix_fallocate", "*/commitlog.new", failing(errno.EIO))
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
        before_call(patch, "posix_fallocate", "*/checksums.new", failing(errno.ENOSPC))
        with pytest.raises(StoreClosedError, match="nothing was stored"):
            put(store, [bytes(3000)])
    assert store.positions().log_end == end
    assert put(store, [bytes(3000)]) == SEGMENT_BYTES
    assert read_all(store) == [bytes(3000)] * 2

"""Starts of a log scan: at the requested offset, or nowhere."""

from __future__ import annotations

import pytest

from rocketpy_broker.errors import LogOffsetError
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.messages import flush_log, numbered, put_all, remove_oldest_segment
from tests.support.store.stores import SEGMENT_BYTES, OpenStore


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    """Returns a store that lost its first two segments and has more than two left."""
    opened = open_store()
    put_all(opened, numbered(300))
    opened.dispatch()
    flush_log(opened)
    for _ in range(2):
        remove_oldest_segment(opened)
    assert len(opened._log.files.segments) > 2
    return opened


def scanner_of(store: MessageStore, bytes_max: int = SEGMENT_BYTES) -> LogScanner:
    return LogScanner(store._log, Trust(store._log.end, Checksummed.ALL), bytes_max)


def test_a_scan_begins_at_the_record_that_it_was_asked_for(store: MessageStore) -> None:
    scanner = scanner_of(store)
    first, *_ = scanner.scan(store._log.begin)
    assert isinstance(first, LogSpan)
    assert first.offset == store._log.begin
    second = store._log.begin + int(first.block.positions[1])
    begun, *_ = scanner.scan(second)
    assert (begun.offset, scanner.end) == (second, store._log.end)


@pytest.mark.parametrize("offset", [0, 2 * SEGMENT_BYTES - 1])
def test_a_scan_from_below_the_log_is_refused(store: MessageStore, offset: int) -> None:
    with pytest.raises(LogOffsetError, match=rf"offset {offset} .* goes from 8192 to"):
        next(scanner_of(store).scan(offset))


def test_a_scan_from_behind_the_log_is_refused(store: MessageStore) -> None:
    end = store._log.files.end
    with pytest.raises(LogOffsetError, match=rf"offset {end + 1} .* goes from 8192 to {end}"):
        next(scanner_of(store).scan(end + 1))


def test_a_scan_from_the_end_of_the_log_finds_nothing(store: MessageStore) -> None:
    scanner = scanner_of(store)
    for end in (store._log.end, store._log.files.end):
        assert list(scanner.scan(end)) == []
        assert scanner.end == end


def test_an_empty_log_is_scanned_from_nothing_to_nothing(open_store: OpenStore) -> None:
    empty = open_store()
    scanner = scanner_of(empty)
    assert list(scanner.scan(0)) == []
    with pytest.raises(LogOffsetError, match=r"offset 1 .* goes from 0 to 0"):
        next(scanner.scan(1))


def test_a_scan_whose_segments_go_while_it_pauses_passes_over_none(store: MessageStore) -> None:
    scan = scanner_of(store, bytes_max=1).scan(store._log.begin)
    next(scan)
    for _ in range(2):
        remove_oldest_segment(store)
    with pytest.raises(LogOffsetError, match=r"offset 12288 .* goes from 16384 to"):
        list(scan)

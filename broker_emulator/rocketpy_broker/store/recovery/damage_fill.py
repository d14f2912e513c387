"""Replacement of damaged records by fillers at the same queue offset.

The damaged record's own queue offset counts only if it fits the queue: the unit at this offset
points to the record, or the record is the queue's next one. For crashes see `filler`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rocketpy_broker.store.log.checksums import SegmentChecksums, is_sound
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.log.scanner import walk
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.recovery.quarantine import Quarantine
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import MalformedRecordError, Record, decode_record, has_queue_offset
from rocketpy_proto.record.layout import FIXED_BYTES

# The bytes after a damaged record that one read checks; they block the event loop for some ms.
AREA_BYTES_MAX = 4 << 20


def pieces_of(log: CommitLog, damage: Damage) -> list[Damage]:
    """Returns the adjacent damaged records, separated by their checksum entries.

    Without such entries, the sizes in the records separate them, as far as they are readable.
    """
    segment = log.files.find(damage.offset)
    assert segment is not None
    begin, end = damage.offset - segment.base, damage.offset - segment.base + damage.length
    checksums = log.checksums.find(segment)
    known = set[int]()
    if checksums is not None:
        entries = checksums.entries_from(begin)[: damage.length // FIXED_BYTES + 1]
        entries = entries[is_sound(entries)]
        places = entries["position"].astype(np.int64)
        known.update(places[places < end].tolist())
    if not known:
        sizes = walk(segment, begin, damage.length).tolist()
        known.update(place for place in itertools.accumulate(sizes, initial=begin) if place < end)
    places_of = sorted(known | {begin})
    return [
        replace(damage, offset=segment.base + place, length=following - place)
        for place, following in itertools.pairwise([*places_of, end])
    ]


def known_record(log: CommitLog, queues: ConsumeQueueTable, damage: Damage) -> Record | None:
    """Returns the damaged record if it can be decoded and its queue offset is certain."""
    try:
        decoded = decode_record(log.files.view(damage.offset, damage.length), check_crc=False)
    except MalformedRecordError:
        return None
    record = decoded.record
    queue = queues.get(QueueKey(record.topic, record.queue_id))
    # Records that wait for their delivery time have other tags codes.
    is_plain = has_queue_offset(record.sys_flag) and record.topic != SCHEDULE_TOPIC
    if queue is None or not is_plain or decoded.size != damage.length:
        return None
    units = queue.units(record.queue_offset, record.queue_offset + 1)
    is_own = len(units) > 0 and units["physical_offset"][0] == damage.offset
    return record if is_own or record.queue_offset == queue.max_offset else None


def fill_damages(
    log: CommitLog,
    queues: ConsumeQueueTable,
    damages: Iterable[Damage],
    store_timestamp_ms: int,
) -> None:
    """Fills the damage that reads have met, if a record was written there that now differs.

    A unit that does not point to a record is no damage of the log. Blocks: it flushes.
    Raises OSError.
    """
    filled: dict[int, tuple[Segment, SegmentChecksums]] = {}
    for damage in damages:
        segment = log.files.find(damage.offset)
        checksums = log.checksums.find(segment) if segment is not None else None
        if segment is None or checksums is None:
            continue
        place, size = np.array([damage.offset - segment.base]), np.array([damage.length], np.int32)
        is_record = checksums.lookup(place)["size"][0] == damage.length
        if is_record and log.compare(segment, place, size).damaged[0]:
            fill(log, damage, store_timestamp_ms, known_record(log, queues, damage))
            filled[segment.base] = segment, checksums
    for segment, checksums in filled.values():
        segment.flush()
        checksums.flush()


def damaged_on(log: CommitLog, damage: Damage, bytes_max: int) -> Damage:
    """Returns `damage` with the damaged records that follow it, up to `bytes_max`.

    The result is never shorter than `damage`.
    """
    segment = log.files.find(damage.offset)
    checksums = log.checksums.find(segment) if segment is not None else None
    if segment is None or checksums is None:
        return damage
    begin = damage.offset - segment.base
    entries = checksums.entries_from(begin)[: bytes_max // FIXED_BYTES]
    ends = begin + entries["size"].astype(np.int64).cumsum()
    follows = is_sound(entries) & (entries["position"] == ends - entries["size"])
    follows &= (entries["size"] > 0) & (ends <= min(begin + bytes_max, segment.size_bytes))
    entries = entries[: int(np.argmin(np.append(follows, False)))]
    places, sizes = entries["position"].astype(np.int64), entries["size"].astype(np.int32)
    same = ~log.compare(segment, places, sizes).damaged
    count = int(np.argmax(np.append(same, True)))
    length = int(ends[count - 1]) - begin if count else 0
    return replace(damage, length=max(length, damage.length))


class DamageTable:
    """The damaged records that reads have met.

    Adjacent damaged records form an area, which is copied and logged once.
    """

    def __init__(self, log: CommitLog, quarantine: Quarantine) -> None:
        self._log = log
        self._quarantine = quarantine
        self.records: dict[int, Damage] = {}
        # Starts and ends of known areas, in order.
        self._bounds: list[int] = []

    def add(self, damage: Damage) -> bool:
        """Keeps a copy of new damage; returns False for known damage."""
        if damage.offset in self.records:
            return False
        self.records[damage.offset] = damage
        place = bisect_right(self._bounds, damage.offset)
        if place % 2 == 0:
            area = damaged_on(self._log, damage, AREA_BYTES_MAX)
            end = area.offset + area.length
            following = self._bounds[place] if place < len(self._bounds) else end
            self._bounds[place:place] = [area.offset, min(end, following)]
            view = self._log.files.view(area.offset, area.length)
            self._quarantine.keep_damage(area, view)
        return True

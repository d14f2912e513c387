"""Timer fields of waiting records: due times and cancellations.

A message is due at the time that its sender named. RocketMQ's TIMER_OUT_MS limits that time to the
second after it. If the sender named no time, the second's end counts. So both brokers agree on the
messages that a read time leaves pending. A message without TIMER_OUT_MS is due at once.
Source: docs/design/storage.md section 13.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.services.delay.pending_messages import SECOND_MS, Due, key_hash
from rocketpy_broker.services.delay.schedule import KEY_JOINT, TIMER_DEL_UNIQKEY
from rocketpy_broker.services.topics.system import REVIVE_PREFIX
from rocketpy_broker.store.append.batch_marks import origins_of
from rocketpy_proto.record import RecordBlock, property_column, with_property
from rocketpy_proto.record.block.masks import null_unless
from rocketpy_proto.record.block.properties_block import BlockProperties, parse_properties
from rocketpy_proto.record.index_keys import has_few
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX
from rocketpy_proto.record.properties import (
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
)
from rocketpy_proto.record.rewrite import properties_strings

TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
# Java's Long.MAX_VALUE: the message was due when it was read.
NEVER_WAITED = (1 << 63) - 1
# The first character of keys that cancel records cannot name.
_OWN_KEY = "\0"
_NUMBER = re.compile("[0-9]{1,15}")
# Properties that make a record a mark.
_MARK_NAMES = (TIMER_DEL_UNIQKEY, TIMER_ROLL_TIMES, REAL_TOPIC, UNIQ_KEY)
# Properties that decide if a message is tombstoned.
_NAMES = (REAL_TOPIC, UNIQ_KEY, TIMER_OUT_MS, TIMER_ROLL_TIMES)


@dataclass(frozen=True, slots=True)
class TimerMark:
    """Record number `row`, which cancels the messages with `key` or replaces older copies."""

    row: int
    out_ms: int
    key: str
    is_cancel: bool


@dataclass(frozen=True, slots=True)
class TimerRecords:
    """Due times of n records, a flag for each that is a message, and marks for other messages."""

    due_ms: NDArray[np.int64]
    is_message: NDArray[np.bool_]
    marks: list[TimerMark]


def cancel_key(topic: str, unique_key: str) -> str:
    """Returns the key by which a record names the message that it cancels."""
    return topic + KEY_JOINT + unique_key


def _message_keys(topic: str, key: str) -> list[str]:
    """Returns the keys of a message; no cancel record can name the key of a check point."""
    whole = cancel_key(topic, key)
    return [_OWN_KEY + whole] if topic.startswith(REVIVE_PREFIX) else [whole, key]


def read_times(block: RecordBlock) -> TimerRecords:
    """Returns the timer fields of records of the timer queue."""
    if has_few(block):
        return _read_few(block)
    properties = parse_properties(block.data, block.properties_start, block.properties_length)
    stored_ms = block.header["store_timestamp"].astype(np.int64)
    out_ms = _numbers(properties, TIMER_OUT_MS)
    seconds, delays, times = (
        _numbers(properties, name) for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
    )
    latest_ms = (out_ms // SECOND_MS + 1) * SECOND_MS
    named_ms = np.select(
        [seconds >= 0, delays >= 0, times >= 0],
        [stored_ms + seconds * SECOND_MS, stored_ms + delays, times],
        latest_ms,
    )
    due_ms = np.where(out_ms >= 0, np.clip(named_ms, out_ms + 1, latest_ms), 0)
    cancels = properties.column(TIMER_DEL_UNIQKEY)
    is_message = cancels.is_null().to_numpy(zero_copy_only=False)
    return TimerRecords(due_ms, is_message, _marks(block, properties, out_ms, cancels))


def _read_few(block: RecordBlock) -> TimerRecords:
    """Returns the fields record by record: for few records that is ten times as fast."""
    due_ms, is_message, marks = list[int](), list[bool](), list[TimerMark]()
    origins, stored_ms = origins_of(block).tolist(), block.header["store_timestamp"].tolist()
    ends = (block.properties_start + block.properties_length).tolist()
    for row, begin in enumerate(block.properties_start.tolist()):
        properties = decode_properties(bytes(block.data[begin : ends[row]]))
        out_ms = _number(properties, TIMER_OUT_MS)
        due_ms.append(_due_ms(properties, out_ms, stored_ms[row]))
        is_message.append(TIMER_DEL_UNIQKEY not in properties)
        mark = _mark(row, out_ms, origins[row], properties)
        marks += [] if mark is None else [mark]
    return TimerRecords(np.array(due_ms, np.int64), np.array(is_message, np.bool_), marks)


def _due_ms(properties: Mapping[str, str], out_ms: int, stored_ms: int) -> int:
    """Returns the due time of one record."""
    if out_ms < 0:
        return 0
    latest_ms = (out_ms // SECOND_MS + 1) * SECOND_MS
    seconds, delay_ms, named_ms = (
        _number(properties, name) for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
    )
    if seconds >= 0:
        named_ms = stored_ms + seconds * SECOND_MS
    elif delay_ms >= 0:
        named_ms = stored_ms + delay_ms
    elif named_ms < 0:
        named_ms = latest_ms
    return min(max(named_ms, out_ms + 1), latest_ms)


def _number(properties: Mapping[str, str], name: str) -> int:
    """Returns the value of a property, as `_numbers`."""
    text = properties.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else -1


def _marks(
    block: RecordBlock,
    properties: BlockProperties,
    out_ms: NDArray[np.int64],
    cancels: pa.StringArray,
) -> list[TimerMark]:
    """Returns marks for the records that cancel or were rolled; most blocks have none."""
    origins = origins_of(block)
    others = pc.or_(cancels.is_valid(), properties.column(TIMER_ROLL_TIMES).is_valid())
    rows = np.flatnonzero((origins >= 0) | others.to_numpy(zero_copy_only=False)).tolist()
    if not rows:
        return []
    columns = {name: properties.column(name) for name in _MARK_NAMES}
    marks = []
    for row in rows:
        values = {name: column[row].as_py() for name, column in columns.items()}
        known = {name: value for name, value in values.items() if value is not None}
        marks.append(_mark(row, int(out_ms[row]), int(origins[row]), known))
    return [mark for mark in marks if mark is not None]


def _mark(row: int, out_ms: int, origin: int, properties: Mapping[str, str]) -> TimerMark | None:
    """Returns the mark of a record that cancels or was rolled; None for other records.

    A copy that a stop of this broker made names its original. That is more exact than a key, which
    several messages may share.
    """
    cancelled = properties.get(TIMER_DEL_UNIQKEY)
    if cancelled is not None:
        is_own = cancelled.startswith(_OWN_KEY)
        return None if is_own else TimerMark(row, out_ms, cancelled, is_cancel=True)
    if origin >= 0:
        return TimerMark(row, out_ms, _place_key(origin), is_cancel=False)
    topic, key = properties.get(REAL_TOPIC), properties.get(UNIQ_KEY)
    if topic is None or key is None or TIMER_ROLL_TIMES not in properties:
        return None
    return TimerMark(row, out_ms, _message_keys(topic, key)[0], is_cancel=False)


def _place_key(physical_offset: int) -> str:
    """Returns a key for one record; it differs from every message's key."""
    return f"{_OWN_KEY}{physical_offset}"


def _numbers(properties: BlockProperties, name: str) -> NDArray[np.int64]:
    """Returns the values of a property; -1 if it is missing or is not 1 to 15 digits."""
    texts = properties.column(name)
    is_number = pc.match_substring_regex(texts, "^[0-9]{1,15}$")
    numbers = null_unless(is_number, texts).cast(pa.int64())
    found: NDArray[np.int64] = numbers.fill_null(-1).to_numpy(zero_copy_only=False)
    return found


def tombstoned_rows(block: RecordBlock, due: Due) -> NDArray[np.bool_]:
    """Returns True for each record that has been cancelled, or replaced by a later copy.

    It takes microseconds for a record, but only in slots with cancelled or replaced messages.
    """
    tombstoned = np.zeros(len(block), np.bool_)
    if not due.tombstones:
        return tombstoned
    places = block.header["physical_offset"].tolist()
    topics, keys, out_ms, rolled = (property_column(block, name) for name in _NAMES)
    hashes: list[int] = []
    rows: list[int] = []
    columns = (one.to_pylist() for one in (out_ms, topics, keys))
    for row, (time, topic, key) in enumerate(zip(*columns, strict=True)):
        if time is not None and time.isdecimal():
            names = [_place_key(places[row])]
            if topic is not None and key is not None:
                names += _message_keys(topic, key)
            hashes += [key_hash(int(time), name) for name in names]
            rows += [row] * len(names)
    is_rolled = rolled.is_valid().to_numpy(zero_copy_only=False) & (origins_of(block) < 0)
    offsets = block.header["queue_offset"].astype(np.int64)
    of_hash = np.array(rows, np.intp)
    is_tombstoned = due.tombstones.cover(
        np.array(hashes, np.int64), offsets[of_hash], is_rolled[of_hash]
    )
    tombstoned[of_hash[is_tombstoned]] = True
    return tombstoned


def delivered_strings(block: RecordBlock, now_ms: int) -> pa.BinaryArray:
    """Returns the properties of messages that are delivered now, with RocketMQ's waiting times.

    A string that has no space for them stays as it is.
    """
    strings = properties_strings(block)
    properties = parse_properties(block.data, block.properties_start, block.properties_length)
    stored_ms = block.header["store_timestamp"].astype(np.int64)
    has_waited = _numbers(properties, TIMER_OUT_MS) >= stored_ms // SECOND_MS * SECOND_MS
    waited_ms = np.where(has_waited, stored_ms, NEVER_WAITED)
    stamped = with_property(strings, TIMER_ENQUEUE_MS, pa.array(waited_ms).cast(pa.string()))
    stamped = with_property(stamped, TIMER_DEQUEUE_MS, str(now_ms))
    return fitting(stamped, strings)


def fitting(longer: pa.BinaryArray, strings: pa.BinaryArray) -> pa.BinaryArray:
    """Returns the longer strings if they fit a record, else the original ones."""
    fits = pc.less_equal(pc.binary_length(longer), PROPERTIES_BYTES_MAX)
    if pc.all(fits).as_py():
        return longer
    return pc.if_else(fits, longer, strings)

"""Index keys of a block's messages, as the hashes of the index.

A message has as keys its unique key, each blank-separated word of its KEYS, and its tag. The hashed
texts are `topic#key` and `topic#T#tag`. The tag comes last, as RocketMQ writes it since 5.4. Keys
are never copied into strings: hashing continues from the topic's hash over the key's bytes. Tags
codes come from the same entries. So `tags_codes_and_index_keys` scans the properties once for both.

Source: docs/design/storage.md sections 7.2 and 7.4; IndexService#buildIndex of RocketMQ 5.5.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record.block.properties_block import Entries
from rocketpy_proto.record.block.record_block import RecordBlock
from rocketpy_proto.record.errors import MalformedRecordError
from rocketpy_proto.record.java_hash import java_hash, java_hash_ranges, java_hashes
from rocketpy_proto.record.properties import (
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAITING_NAMES,
    decode_properties,
)
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketpy_proto.record.tags import tags_codes

TOPIC_END = "#"
# Prefix of a tag. A word of KEYS may look the same, so a query also compares the tag.
TAG_PREFIX = "T#"
# Up to FEW_RECORDS records of one topic are handled one by one: 5 to 7 microseconds each. Arrays
# cost 100 microseconds for all of them, and twice that in a busy broker.
FEW_RECORDS = 24
_FEW_BYTES_MAX = 2_048
_BLANK = ord(KEY_SEPARATOR)
_WAITING_LENGTHS = sorted({len(name) for name in WAITING_NAMES - {TRAN_MSG}})
_WAITING_OCTETS = frozenset(name.encode() for name in WAITING_NAMES)
_LENGTHS_MAX = _WAITING_LENGTHS[-1] + 1
# Continue a hash over the prefix of a tag, whatever the text before it.
_PREFIX_POWER, _PREFIX_HASH = np.uint32(31 ** len(TAG_PREFIX)), np.uint32(java_hash(TAG_PREFIX))


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The m keys of a block, in index order.

    `hash` (m int32, never negative) is the index's hash. `row` (m int64, ascending) is the record.
    """

    hash: NDArray[np.int32]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class TagsAndKeys:
    """The broker's view of n records' properties: n tags codes, and the index keys.

    `may_wait` means that some records may have one of WAITING_NAMES.
    """

    tags_codes: NDArray[np.int64]
    index_keys: IndexKeys
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of index keys: per record and per block."""

    per_record: int
    per_block: int

    def check(self, records: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Raises MalformedRecordError for too many keys.

        `counts` are the words in KEYS of each of `records`.
        """
        too_many = np.flatnonzero(counts > self.per_record)
        if len(too_many):
            which = int(too_many[0])
            reason = f"{counts[which]} keys in a message, limit {self.per_record}"
            raise MalformedRecordError(reason, index=int(records[which]))
        if (total := int(counts.sum())) > self.per_block:
            raise MalformedRecordError(f"{total} keys, limit {self.per_block}; send smaller blocks")


def index_hash(topic: str, key: str) -> int:
    """Returns the hash of one key (docs/design/storage.md section 7.2)."""
    return _index_hash(java_hash(topic + TOPIC_END), key)


def tag_key(tag: str) -> str:
    """Returns a tag's key in the index."""
    return TAG_PREFIX + tag


def _index_hash(seed: int, key: str) -> int:
    """Returns the hash of one key, from the hash of `topic#`."""
    value = abs(java_hash(key, seed))
    return value if value < 1 << 31 else 0


def index_keys(block: RecordBlock, topics: str | pa.Array) -> IndexKeys:
    """Returns the index keys of a block of one topic, or of one topic per record (strings)."""
    seeds = _seeds(topics)
    return _concatenated([_keys_of(block, part, some, seeds) for part, some in block.entries()])


def are_tags(block: RecordBlock, keys: IndexKeys) -> NDArray[np.bool_]:
    """Returns a mask of the `keys` that are their record's tag, which is its last key."""
    tagged = [_values(some, TAGS).record + part.start for part, some in block.entries()]
    rows = np.concatenate([np.empty(0, np.int64), *tagged])
    found = np.zeros(len(keys), np.bool_)
    # A rolled back record has no keys.
    rows = rows[np.isin(rows, keys.row)]
    found[np.searchsorted(keys.row, rows, "right") - 1] = True
    return found


def tags_codes_and_index_keys(
    block: RecordBlock, topics: str | pa.Array, limits: KeyLimits | None = None
) -> TagsAndKeys:
    """Returns `block.tags_codes()` and `index_keys(block, topics)` from one scan.

    Raises MalformedRecordError for a block with more keys than `limits`.
    """
    if isinstance(topics, str) and has_few(block):
        found = _of_few(block, topics)
        if found is not None:
            return found
    seeds = _seeds(topics)
    codes = np.zeros(len(block), np.int64)
    keys = []
    may_wait = False
    for part, entries in block.entries():
        codes[part] = tags_codes(entries, len(codes[part]))
        keys.append(_keys_of(block, part, entries, seeds, limits))
        may_wait = may_wait or _may_wait(entries)
    return TagsAndKeys(codes, _concatenated(keys), may_wait)


def _may_wait(entries: Entries) -> bool:
    """True if a name is as long as a name of WAITING_NAMES; TRAN_MSG is compared in full.

    If all records have the same names, all names are compared in full.
    """
    if entries.names:
        return not _WAITING_OCTETS.isdisjoint(entries.names)
    lengths = np.bincount(entries.middle - entries.begin, minlength=_LENGTHS_MAX)
    return bool(lengths[_WAITING_LENGTHS].any()) or len(entries.named(TRAN_MSG)) > 0


def has_few(block: RecordBlock) -> bool:
    """True if a loop over the records and their properties is faster than arrays.

    A properties string of more than _FEW_BYTES_MAX bytes may have a thousand entries or keys.
    """
    is_small = len(block) <= FEW_RECORDS
    return is_small and int(block.properties_length.max(initial=0)) <= _FEW_BYTES_MAX


def _of_few(block: RecordBlock, topic: str) -> TagsAndKeys | None:
    """Returns tags codes and index keys record by record.

    Returns None if a properties string is not ASCII.
    """
    codes, hashes, rows = [], [], []
    seed = java_hash(topic + TOPIC_END)
    may_wait = False
    for row in range(len(block)):
        begin = int(block.properties_start[row])
        encoded = bytes(block.data[begin : begin + int(block.properties_length[row])])
        if not encoded.isascii():
            return None
        properties = decode_properties(encoded)
        may_wait = may_wait or not WAITING_NAMES.isdisjoint(properties)
        codes.append(java_hash(properties.get(TAGS, "")))
        if int(block.header["sys_flag"][row]) & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        keys = [properties.get(UNIQ_KEY, ""), *properties.get(KEYS, "").split(KEY_SEPARATOR)]
        keys += [tag_key(properties[TAGS])] if TAGS in properties else []
        found = [_index_hash(seed, key) for key in keys if key]
        hashes += found
        rows += [row] * len(found)
    keys_of_few = IndexKeys(np.array(hashes, np.int32), np.array(rows, np.int64))
    return TagsAndKeys(np.array(codes, np.int64), keys_of_few, may_wait)


def _seeds(topics: str | pa.Array) -> NDArray[np.uint32]:
    """Returns the hash of `topic#`, once or for each record."""
    if isinstance(topics, str):
        return np.array([java_hash(topics + TOPIC_END)], np.int32).view(np.uint32)
    if not isinstance(topics, pa.DictionaryArray):
        topics = topics.dictionary_encode()
    hashes = java_hashes(topics.dictionary).view(np.uint32)
    seeds: NDArray[np.uint32] = hashes * np.uint32(31) + np.uint32(ord(TOPIC_END))
    of_records: NDArray[np.uint32] = seeds[topics.indices.to_numpy()]
    return of_records


def _concatenated(parts: list[IndexKeys]) -> IndexKeys:
    if len(parts) == 1:
        return parts[0]
    empty = IndexKeys(np.empty(0, np.int32), np.empty(0, np.int64))
    parts = [empty, *parts]
    return IndexKeys(
        np.concatenate([keys.hash for keys in parts]), np.concatenate([keys.row for keys in parts])
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """Keys of one kind as ranges of the entries' bytes, and each key's record."""

    record: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def _keys_of(
    block: RecordBlock,
    part: slice,
    entries: Entries,
    seeds: NDArray[np.uint32],
    limits: KeyLimits | None = None,
) -> IndexKeys:
    """Returns the keys of the records in `part`; `entries` are their properties."""
    if len(seeds) > 1:
        seeds = seeds[part]
    kinds = [
        (_values(entries, UNIQ_KEY), seeds),
        (_split(entries, _values(entries, KEYS), limits), seeds),
        (_values(entries, TAGS), seeds * _PREFIX_POWER + _PREFIX_HASH),
    ]
    hashes = np.concatenate([_hashes(entries.octets, words, before) for words, before in kinds])
    record = np.concatenate([words.record for words, _ in kinds])
    # One number holds the record and the key's place so far, so unique keys come first.
    order = np.sort(record << 32 | np.arange(len(record)))
    record, order = order >> 32, order & 0xFFFFFFFF
    flags = block.header["sys_flag"][part]
    rolled_back = flags & TRANSACTION_MASK == TRANSACTION_ROLLBACK
    if np.count_nonzero(rolled_back):
        kept = ~rolled_back[record]
        record, order = record[kept], order[kept]
    return IndexKeys(hashes[order], record + part.start)


def _values(entries: Entries, name: str) -> _Words:
    """Returns the values of a property; the last of several in one record."""
    named = entries.named(name)
    record = entries.record[named]
    again = record[1:] == record[:-1]
    if np.count_nonzero(again):
        named = named[np.append(~again, True)]
        record = entries.record[named]
    return _Words(record, entries.middle[named] + 1, entries.end[named])


def _split(entries: Entries, values: _Words, limits: KeyLimits | None) -> _Words:
    """Returns the non-empty words between the blanks of each value."""
    blanks = (entries.octets == _BLANK).nonzero()[0]
    place = np.searchsorted(blanks, values.begin) if len(blanks) else blanks
    per_value = np.searchsorted(blanks, values.end) - place if len(blanks) else blanks
    if not np.count_nonzero(per_value):
        return values
    if limits is not None:
        limits.check(values.record, per_value + 1)
    # The blanks of a value are adjacent in `blanks`; other blanks may come between values.
    first = np.repeat(place - np.cumsum(per_value) + per_value, per_value)
    inside = blanks[first + np.arange(len(first))]
    after = np.cumsum(per_value)
    begin = np.insert(inside + 1, after - per_value, values.begin)
    end = np.insert(inside, after, values.end)
    record = np.repeat(values.record, per_value + 1)
    filled = end > begin
    return _Words(record[filled], begin[filled], end[filled])


def _hashes(
    octets: NDArray[np.uint8], words: _Words, seeds: NDArray[np.uint32]
) -> NDArray[np.int32]:
    """Returns the index's hash of each word."""
    seeds = seeds[words.record] if len(seeds) > 1 else seeds
    hashes = np.abs(java_hash_ranges(octets, words.begin, words.end, seeds))
    # The smallest number has no positive counterpart; it becomes 0.
    return np.maximum(hashes, 0, out=hashes)

"""Deduplication of a task's rows by their unique keys and content.

A row counts as stored if its topic has its key with its body and properties, by their CRCs. So rows
that come in another order than before are sent again, not lost. Properties that a broker adds are
ignored; unknown additions would make rows come twice. State is the stored rows that were found.
"""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_rocketpy.transport.write_values import Block
from rocketpy_proto.model.unique_keys import row_numbers
from rocketpy_proto.record import EncodedBlock, RecordBlock, property_columns
from rocketpy_proto.record.block.properties_block import parse_properties
from rocketpy_proto.record.properties import NOT_COPIED_NAMES, UNIQ_KEY

_CRC_BITS = 32
# An odd factor: products of different numbers are different.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
# Properties that brokers add, which no row has, and the key that identifies the row.
_NOT_OURS = NOT_COPIED_NAMES | {UNIQ_KEY}


class StoredRows:
    """Stored rows of one task; its keys begin with `digits`."""

    def __init__(self, digits: str) -> None:
        self._digits = digits
        self._numbers = np.empty(0, np.int64)
        self._marks = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, stored: RecordBlock, topic: str) -> None:
        """Adds the task's own rows among records that were read of a topic."""
        numbers = self._numbers_of(stored)
        own = numbers >= 0
        marks = marks_of(stored.filter(own), numbers[own], topic)
        self._numbers = np.union1d(self._numbers, numbers[own])
        self._marks = np.union1d(self._marks, marks)

    def has(self, key: str) -> bool:
        """True if a row with this key is stored."""
        [number] = row_numbers(pa.array([key]), self._digits)
        return bool((self._numbers == number).any())

    def without(self, block: Block) -> Block | None:
        """Returns the block without the rows that are stored; None if no row is left."""
        sizes = np.frombuffer(block.record_sizes, ">i4").astype(np.int32)
        records = RecordBlock.parse(block.records, sizes)
        marks = marks_of(records, self._numbers_of(records), block.topic)
        kept = np.flatnonzero(~np.isin(marks, self._marks))
        if len(kept) == len(sizes):
            return block
        if not len(kept):
            return None
        left = EncodedBlock(pa.py_buffer(block.records), sizes).take(kept)
        return Block(
            block.topic,
            block.queue_id,
            left.sizes.astype(">i4").tobytes(),
            left.data.to_pybytes()[: int(left.sizes.sum())],
            block.delay,
            block.is_movable,
        )

    def _numbers_of(self, records: RecordBlock) -> NDArray[np.int64]:
        """Returns the number of each row; -1 for records of other tasks."""
        return row_numbers(property_columns(records, [UNIQ_KEY])[UNIQ_KEY], self._digits)


def marks_of(records: RecordBlock, numbers: NDArray[np.int64], topic: str) -> NDArray[np.uint64]:
    """Returns 64 bits for each record, of its row number, topic, body and properties.

    Properties count in any order. The loop over them runs only in a task that runs again.
    """
    found = parse_properties(records.data, records.properties_start, records.properties_length)
    names = {code: zlib.crc32(name.encode()) for name, code in found.name_code.items()}
    strange = [code for name, code in found.name_code.items() if name in _NOT_OURS]
    crcs = np.array(
        [
            zlib.crc32(value.encode(), names[code])
            for value, code in zip(found.values.to_pylist(), found.codes.tolist(), strict=True)
        ],
        np.uint64,
    )
    sums = np.full(len(records), zlib.crc32(topic.encode()), np.uint64)
    counted = ~np.isin(found.codes, strange)
    np.add.at(sums, found.record[counted], crcs[counted] * _SPREAD)
    bodies = records.header["body_crc"].astype(np.uint64) << np.uint64(_CRC_BITS)
    marks: NDArray[np.uint64] = (numbers.astype(np.uint64) + np.uint64(1)) * _SPREAD ^ bodies ^ sums
    return marks

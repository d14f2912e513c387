"""A program that enters keys until it is killed: `python -m tests.store.index.writer <folder>`.

It writes a line after each block. A key is a function of its number.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.index.service import IndexService
from rocketpy_proto.record import IndexKeys

FORMAT = IndexFormat(slot_count=1_000, entry_count_max=5_000)
KEYS_PER_RECORD = 2
RECORDS_PER_BLOCK = 700
RECORD_BYTES = 100
BEGIN_MS = 1_700_000_000_000


def time_of(physical_offset: int) -> int:
    """Returns the store time of the record at this offset."""
    return BEGIN_MS + physical_offset * 7


def hash_of(number: int) -> int:
    """Returns the hash of the key with this number, from 0 on; keys share slots."""
    return number * 7_919 % 3_000


def main(folder: Path) -> None:
    """Enters block after block."""
    service = IndexService(folder, SystemClock(), FORMAT)
    service.load()
    rows = np.repeat(np.arange(RECORDS_PER_BLOCK), KEYS_PER_RECORD)
    for block in itertools.count():
        numbers = np.arange(len(rows)) + block * len(rows)
        offsets = (np.arange(RECORDS_PER_BLOCK) + block * RECORDS_PER_BLOCK) * RECORD_BYTES
        hashes = np.array([hash_of(number) for number in numbers.tolist()], np.int32)
        service.put(IndexKeys(hashes, rows), offsets, BEGIN_MS + offsets * 7)
        sys.stdout.write(f"{block}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

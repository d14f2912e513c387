"""`StoreCheck` on index files with and without entries of tags.

RocketMQ writes entries of tags since 5.4. Brokers of both kinds may have used one directory, so a
tag may have an entry or none.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, StoreCheck
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.index.layout import ENTRY, IndexFormat
from rocketpy_broker.store.index.service import IndexService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record import IndexKeys
from rocketpy_proto.record.index_keys import are_tags, index_keys
from tests.store.index.test_golden import golden_blocks
from tests.support.blocks import wire_block
from tests.support.store.messages import QUEUE, numbered
from tests.support.store.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, STORE_HOST

COUNT = 24


def index_format(entry_count_max: int) -> IndexFormat:
    return IndexFormat(slot_count=7, entry_count_max=entry_count_max)


def new_store(folder: Path, entry_count_max: int) -> MessageStore:
    config = StoreConfig(
        folder,
        SEGMENT_BYTES,
        QUEUE_FILE_BYTES,
        index_slot_count=7,
        index_entry_count_max=entry_count_max,
    )
    return MessageStore(config, ManualClock(), STORE_HOST)


def write(folder: Path, entry_count_max: int) -> None:
    """Writes a store with our code: each message has a tag, two of three have two keys."""
    store = new_store(folder, entry_count_max)
    store.open()
    keys = [f"k{number} all" if number % 3 else "" for number in range(COUNT)]
    block = wire_block(QUEUE.topic, numbered(COUNT), keys=keys, tags="TagA")
    store.append(QUEUE, block.parsed())
    store.close()


def rewrite_index(folder: Path, entry_count_max: int, *, tags_from: int, tags_to: int) -> None:
    """Rebuilds the index with the tags of records `tags_from` to `tags_to` only."""
    shutil.rmtree(folder / "rocketpy")
    shutil.rmtree(folder / "index")
    service = IndexService(folder / "index", ManualClock(), index_format(entry_count_max))
    base = 0
    for block in golden_blocks(folder):
        keys = index_keys(block, QUEUE.topic)
        number = base + keys.row
        kept = ~are_tags(block, keys) | ((number >= tags_from) & (number < tags_to))
        offsets = block.header["physical_offset"].astype(np.int64)
        times = block.header["store_timestamp"].astype(np.int64)
        service.put(IndexKeys(keys.hash[kept], keys.row[kept]), offsets, times)
        base += len(block)
    service.flush()
    service.close()


def faults(folder: Path, entry_count_max: int) -> list[str]:
    checking = StoreCheck(folder, StoreSizes.of(folder), index_format(entry_count_max))
    return [one.text for one in checking.run() if isinstance(one, Fault)]


# All entries fit into the first size; the small ones split a record's keys over two files.
@pytest.mark.parametrize("entry_count_max", [100, 4, 5, 6, 7])
@pytest.mark.parametrize(
    ("tags_from", "tags_to"), [(0, COUNT), (0, 0), (9, COUNT), (0, 13), (5, 14)]
)
def test_s05_an_entry_of_a_tag_may_be_there_or_not(
    tmp_path: Path, entry_count_max: int, tags_from: int, tags_to: int
) -> None:
    write(tmp_path, entry_count_max)
    assert faults(tmp_path, entry_count_max) == []
    rewrite_index(tmp_path, entry_count_max, tags_from=tags_from, tags_to=tags_to)
    assert faults(tmp_path, entry_count_max) == []


@pytest.mark.parametrize("tags_to", [0, COUNT])
def test_s05_entries_of_no_key_and_lost_keys_are_told_with_tags_or_without(
    tmp_path: Path, tags_to: int
) -> None:
    write(tmp_path, 100)
    rewrite_index(tmp_path, 100, tags_from=0, tags_to=tags_to)
    (path,) = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    # The lowest byte of a key's hash: each third record has no key.
    place = index_format(100).entries_begin + 3 * ENTRY.itemsize + 3
    data[place] ^= 1
    path.write_bytes(data)
    told = faults(tmp_path, 100)
    assert any("where no record has this key" in text for text in told)
    assert any("of records from log offset" in text for text in told)


def test_s05_a_start_makes_an_index_that_was_removed_with_tags(tmp_path: Path) -> None:
    write(tmp_path, 100)
    shutil.rmtree(tmp_path / "index")
    again = new_store(tmp_path, 100)
    again.open()
    assert len(again.messages.by_tag(QUEUE.topic, "TagA", 0, 1 << 50, 64)) == COUNT
    again.close()
    assert faults(tmp_path, 100) == []

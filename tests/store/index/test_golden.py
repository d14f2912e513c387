"""RocketMQ's own index files: rebuilt from its log, and searched.

They are kept outside the repository; without them these tests are skipped.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.index.service import IndexService
from rocketpy_proto.record import (
    COLUMN_TYPES,
    RECORD_MAGICS,
    IndexKeys,
    RecordBlock,
    to_record_batch,
)
from rocketpy_proto.record.index_keys import are_tags, index_keys
from tests.support.golden import GOLDEN

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason="the golden stores are not here")
TOPIC_SCHEMA = pa.schema([("topic", COLUMN_TYPES["topic"])])
FOREVER = 1 << 50
SIZE_AND_MAGIC = struct.Struct(">iI")


def golden_blocks(folder: Path) -> Iterator[RecordBlock]:
    """Yields the records of each segment of RocketMQ's log."""
    for path in sorted((folder / "commitlog").iterdir()):
        data = path.read_bytes()
        sizes: list[int] = []
        end = 0
        while end + SIZE_AND_MAGIC.size <= len(data):
            size, magic = SIZE_AND_MAGIC.unpack_from(data, end)
            if magic not in RECORD_MAGICS:
                break
            sizes.append(size)
            end += size
        yield RecordBlock.parse(data[:end], np.array(sizes, np.int32))


def put_blocks(service: IndexService, blocks: Sequence[RecordBlock]) -> None:
    """Enters keys as RocketMQ 5.3 does, which enters no tags."""
    for block in blocks:
        topics = to_record_batch(block, TOPIC_SCHEMA).column(0)
        offsets = block.header["physical_offset"].astype(np.int64)
        times = block.header["store_timestamp"].astype(np.int64)
        keys = index_keys(block, topics)
        kept = ~are_tags(block, keys)
        service.put(IndexKeys(keys.hash[kept], keys.row[kept]), offsets, times)


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[[str], Path]:
    """Returns a function that unpacks one of RocketMQ's stores."""

    def make(name: str) -> Path:
        archive = GOLDEN / f"rocketmq_store_{name}.tar.gz"
        subprocess.run(["tar", "-xSzf", archive, "-C", tmp_path], check=True)
        (folder,) = (path.parent for path in tmp_path.rglob("commitlog"))
        return folder

    return make


def same_content(left: Path, right: Path) -> bool:
    return subprocess.run(["cmp", "--silent", left, right], check=False).returncode == 0


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_s05_an_index_made_from_the_log_equals_rocketmqs(
    unpack: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    store = unpack(name)
    (theirs,) = (store / "index").iterdir()
    service = IndexService(tmp_path / "ours", ManualClock())
    blocks = list(golden_blocks(store))
    put_blocks(service, blocks)
    (ours,) = (tmp_path / "ours").iterdir()
    assert service.physical_end > 0
    assert same_content(ours, theirs)
    # A second dispatch, of all or a part, changes nothing.
    put_blocks(service, blocks)
    service.close()
    assert same_content(ours, theirs)


def test_s05_rocketmqs_own_index_answers(unpack: Callable[[str], Path]) -> None:
    store = unpack("crashed")
    service = IndexService(store / "index", ManualClock())
    service.load()
    assert service.in_doubt is None
    service.truncate(FOREVER)
    blocks = list(golden_blocks(store))
    offsets = np.concatenate([block.header["physical_offset"] for block in blocks])
    for number in (0, 1, 1_234, 2_499):
        found = service.query("TopicN", f"k{number}", 0, FOREVER, 64)
        assert found.tolist() == [int(offsets[number])]
    assert service.query("TopicN", "k2500", 0, FOREVER, 64).tolist() == []
    service.close()

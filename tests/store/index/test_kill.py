"""Kills of a process that enters keys: the index is repaired and continues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.index.service import IndexService
from tests.store.index import writer as index_writer
from tests.store.index.model import ModelService


def model_of(key_count: int) -> ModelService:
    """Returns the index after the first `key_count` keys."""
    model = ModelService(index_writer.FORMAT)
    for number in range(key_count):
        offset = number // index_writer.KEYS_PER_RECORD * index_writer.RECORD_BYTES
        model.put([index_writer.hash_of(number)], offset, index_writer.time_of(offset))
    return model


@pytest.mark.parametrize("blocks", [0, 1, 5, 12])
def test_s05_after_a_kill_every_file_is_that_of_the_keys_counted(
    tmp_path: Path, blocks: int
) -> None:
    folder = tmp_path / "index"
    command = [sys.executable, "-m", "tests.store.index.writer", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(blocks + 1):
            assert writer.stdout.readline()
        writer.kill()
    service = IndexService(folder, ManualClock(), index_writer.FORMAT)
    service.load()
    assert service.in_doubt is None
    service.truncate(1 << 60, index_writer.time_of)
    found = [path.read_bytes() for path in sorted(folder.iterdir())]
    entered = sum(int.from_bytes(content[36:40], "big") - 1 for content in found)
    per_block = index_writer.KEYS_PER_RECORD * index_writer.RECORDS_PER_BLOCK
    assert entered >= (blocks + 1) * per_block
    assert found == [file.to_bytes() for file in model_of(entered).files]
    service.close()

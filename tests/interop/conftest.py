"""What the tests against RocketMQ's own code share. Set up by `make interop`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.interop.rocketmq import CLASSES
from tests.interop.stores import MakeStores, Stores

HERE = Path(__file__).parent
SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, so that `make test` leaves it out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(autouse=True)
def _jars() -> None:
    if not CLASSES.exists():
        pytest.fail("RocketMQ's jars are not here: run `make interop`", pytrace=False)


@pytest.fixture
def new_stores(tmp_path: Path) -> MakeStores:
    """Makes a directory for both sides, with small files unless told otherwise."""

    def make(
        flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
        segment_bytes: int = SEGMENT_BYTES,
        queue_file_bytes: int = QUEUE_FILE_BYTES,
    ) -> Stores:
        return Stores(tmp_path / "store", tmp_path, segment_bytes, queue_file_bytes, flush)

    return make


@pytest.fixture
def stores(new_stores: MakeStores) -> Stores:
    """A directory with small files, so that the tests cross their borders."""
    return new_stores()

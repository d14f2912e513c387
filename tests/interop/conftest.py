"""Fixtures of the tests against RocketMQ's own code. Set up by `make interop`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.interop.cluster.cluster import Cluster
from tests.interop.rocketmq import V5, VERSIONS, classes_of
from tests.interop.stores import MakeStores, Stores

HERE = Path(__file__).parent
SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder, so that `make test` leaves them out.

    Tests of the one cluster stay in one process, together with the cluster's tests that share a
    Spark session.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
        of_cluster = {HERE / "cluster", HERE / "spark"} & {*item.path.parents}
        if of_cluster and "spark" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(autouse=True, scope="session")
def _jars() -> None:
    if not all(classes_of(version).exists() for version in VERSIONS):
        pytest.fail("RocketMQ's jars are not here: run `make interop`", pytrace=False)


@pytest.fixture
def version() -> str:
    """Returns the RocketMQ version that shares a directory with us.

    A test overrides it where files differ by version: an index, a checkpoint, files after a kill.
    """
    return V5


@pytest.fixture
def new_stores(tmp_path: Path, version: str) -> MakeStores:
    """Returns a function that makes a directory for both sides, by default with small files."""

    def make(
        flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
        segment_bytes: int = SEGMENT_BYTES,
        queue_file_bytes: int = QUEUE_FILE_BYTES,
    ) -> Stores:
        return Stores(tmp_path / "store", tmp_path, segment_bytes, queue_file_bytes, flush, version)

    return make


@pytest.fixture
def stores(new_stores: MakeStores) -> Stores:
    """Returns a directory with small files, so that the tests cross their borders."""
    return new_stores()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a real cluster for the session; a test that breaks it uses `fragile_cluster`."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.start()
        yield started
    finally:
        started.kill()


@pytest.fixture
def fragile_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Yields the same, for a test that kills or freezes servers; afterwards all run again."""
    yield cluster
    cluster.heal()

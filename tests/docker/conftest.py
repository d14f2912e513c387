"""The images, each built once for all tests of a process."""

from __future__ import annotations

import pytest

from tests.docker.builds import Builder
from tests.docker.offline_index import make_index


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Builds images of docker/Dockerfile."""
    index = tmp_path_factory.mktemp("index")
    make_index(index)
    return Builder(tmp_path_factory.mktemp("images"), index)

"""Images, volumes and networks of tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.interop.containers.podman import new_name, podman

IMAGES = ("rocketpy-broker", "rocketpy-notebooks")


@pytest.fixture(scope="session", autouse=True)
def images() -> None:
    """Skips the tests where `make interop` could build no images."""
    if shutil.which("podman") is None:
        pytest.skip("Podman is not installed")
    for image in IMAGES:
        if podman("image", "exists", image, check=False).returncode:
            pytest.skip(f"the image {image} was not built: run make interop")


@pytest.fixture
def volume() -> Iterator[str]:
    """Yields a new volume."""
    name = podman("volume", "create").stdout.strip()
    yield name
    podman("volume", "rm", "--force", name)


@pytest.fixture
def network() -> Iterator[str]:
    """Yields a network in which containers find each other by name."""
    name = new_name()
    podman("network", "create", name)
    yield name
    podman("network", "rm", "--force", name)

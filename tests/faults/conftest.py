"""Workers, seeds and folders for tests that inject faults."""

from __future__ import annotations

import logging
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.workers.zygote import Zygote
from tests.support.broker.running_broker import start_broker

__all__ = ["start_broker"]
SEED_VARIABLE = "ROCKETPY_FAULT_SEED"
RAM_FOLDER = Path("/dev/shm")


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Yields a starter of workers."""
    with Zygote() as started:
        yield started


@pytest.fixture
def seed() -> int:
    """Returns the seed of all random choices, logged for a rerun; the variable sets it."""
    chosen = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 32))
    logging.getLogger(__name__).warning("run again with %s=%d", SEED_VARIABLE, chosen)
    return chosen


@pytest.fixture
def ram_folder(tmp_path: Path) -> Iterator[Path]:
    """Yields a folder in memory where possible: a kill leaves the page cache alone anyway."""
    if not RAM_FOLDER.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="rocketpy-", dir=RAM_FOLDER) as folder:
        yield Path(folder)

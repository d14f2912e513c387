"""Brokers on what a kill leaves."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.copies import copy_running_store


@pytest.fixture
def start_crashed(start_broker: StartBroker, tmp_path: Path) -> StartBroker:
    """Returns a function that starts a broker; its end leaves what a kill would leave."""

    @asynccontextmanager
    async def start(flush: FlushDiskType, **settings: Any) -> AsyncIterator[RunningBroker]:
        kept = tmp_path.with_name(tmp_path.name + "-killed")
        async with start_broker(flush, **settings) as running:
            yield running
            copy_running_store(tmp_path, kept)
        shutil.rmtree(tmp_path)
        kept.rename(tmp_path)
        assert (tmp_path / "abort").exists()

    return start

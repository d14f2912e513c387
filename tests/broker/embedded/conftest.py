"""LocalBrokers that start as users' do: a new process, with all imports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def started_brokers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketpy_broker.embedded.process.Popen", subprocess.Popen)
        yield

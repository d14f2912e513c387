"""LocalBrokers whose processes start as users' do, with all imports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def started_brokers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketpy_broker.embedded.process.Popen", subprocess.Popen)
        yield

"""Waits that are recorded and end at once."""

from __future__ import annotations

import pytest

from pyspark_rocketpy import clock


@pytest.fixture
def waits_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the list of all waits before retries, in order."""
    waits: list[int] = []
    monkeypatch.setattr(clock, "sleep_ms", waits.append)
    return waits

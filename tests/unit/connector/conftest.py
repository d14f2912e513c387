"""Waits that pass at once, and are taken down."""

from __future__ import annotations

import pytest

from pyspark_rocketpy import clock


@pytest.fixture
def waits_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every wait before a retry, in order."""
    waits: list[int] = []
    monkeypatch.setattr(clock, "sleep_ms", waits.append)
    return waits

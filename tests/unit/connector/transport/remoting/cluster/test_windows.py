"""Congestion windows: numbers of pulls in flight and of their messages, after answers."""

from __future__ import annotations

from pyspark_rocketpy.transport.remoting.cluster.congestion_window import (
    FULL_MAX,
    LATE_MS,
    PULLS_AT_FIRST,
    PullWindow,
)

SOON_MS = 1


def test_a_window_grows_with_answers_that_were_waited_for() -> None:
    window = PullWindow(64, bytes_max=1 << 20)
    window.answered(1_000, None)
    assert window.pulls == PULLS_AT_FIRST
    for _ in range(100):
        window.answered(1_000, SOON_MS)
    assert window.pulls == 64


def test_a_busy_or_late_broker_gets_half_and_then_slowly_more() -> None:
    window = PullWindow(64, bytes_max=1 << 30)
    for _ in range(60):
        window.answered(1_000, SOON_MS)
    window.halve()
    assert window.pulls == 32
    window.answered(1_000, LATE_MS)
    assert window.pulls == 16
    for _ in range(16):
        window.answered(1_000, SOON_MS)
    assert window.pulls == 16
    window.answered(1_000, SOON_MS)
    assert window.pulls == 17
    for _ in range(10):
        window.halve()
    assert window.pulls == 1


def test_bytes_on_their_way_bound_the_pulls() -> None:
    window = PullWindow(64, bytes_max=100_000)
    for _ in range(100):
        window.answered(10_000, SOON_MS)
    assert window.pulls == 10
    for _ in range(30):
        window.answered(1_000_000, SOON_MS)
    assert window.pulls == 1


def test_pulls_are_as_long_as_answers_and_grow_again() -> None:
    window = PullWindow(64, bytes_max=1 << 20)
    assert window.count == 32
    window.short(8)
    for _ in range(FULL_MAX):
        window.full()
    assert window.count == 8
    window.full()
    assert window.count == 11
    for _ in range(20 * FULL_MAX):
        window.full()
    assert window.count == 32
    window.first(400)
    window.short(2)
    for _ in range(40 * FULL_MAX):
        window.full()
    assert window.count == 400

"""The clock of one side of a pair."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.simulation.loop import Timer, VirtualClock


class SideClock:
    """The clock of one side: it may be set, and fires no timer while the side is frozen."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._ahead_ms = 0
        self._late: list[Callable[[], None]] = []
        self.is_frozen = False

    def now_ms(self) -> int:
        """Returns the wall time."""
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> float:
        """Returns the elapsed time."""
        return self._clock.monotonic_ms()

    def jump(self, delta_ms: int) -> None:
        """Sets the wall clock."""
        self._ahead_ms += delta_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` at the time, or when the side is no longer frozen."""
        timer = self._clock.call_later(delay_ms, lambda: None)

        def due() -> None:
            if self.is_frozen:
                self._late.append(lambda: again(callback))
            else:
                callback()

        def again(late: Callable[[], None]) -> None:
            if timer.callback is not None:
                late()

        timer.callback = due
        return timer

    def thaw(self) -> None:
        """Fires what was due."""
        self.is_frozen = False
        late, self._late = self._late, []
        for callback in late:
            callback()

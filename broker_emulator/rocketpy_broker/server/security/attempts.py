"""Delays of sign-in attempts after failures, against guessed secret keys.

Failures count for a user at an address, for the user, and for the address. Above the free number
each further attempt waits, longer with each failure. Attempts wait one after the other, so more
connections are no faster. The wait that all users of an address or all addresses of a user share
is short, but grows with their attempts. So it is not for a user at an address where it has signed
in: guesses from elsewhere do not keep the user out. State: the failures and these addresses, in
memory; the oldest give way.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.security.errors import TooManyAttemptsError

ENTRIES_MAX = 10_000
# A count ends after this time without a failure.
FORGET_MS = 600_000
FIRST_DELAY_MS = 100
# An attempt that would wait longer is refused at once.
WAIT_MS_MAX = 30_000
# Attempts that wait at a time.
WAITING_MAX = 256


@dataclass(frozen=True, slots=True)
class _Rule:
    """The number of failures without a delay, and the longest delay of one attempt."""

    free: int
    delay_ms_max: float


# By the kind of a count: a user at an address, a user, an address.
PAIR, USER, HOST = _Rule(5, 16_000), _Rule(50, 200), _Rule(20, 200)


@dataclass(slots=True)
class _Count:
    failures: int
    last_ms: float
    # The time of the next attempt.
    next_ms: float = 0.0


class Attempts:
    """The failures of users and addresses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: OrderedDict[tuple[str, str], _Count] = OrderedDict()
        # Users with an address where they have signed in, the last one last.
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._counts)

    def wait_ms(self, access_key: str, host: str) -> float:
        """Returns the time that an attempt must wait, and reserves its turn.

        Raises TooManyAttemptsError if it is too long.
        """
        if not self._counts:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        turns: list[tuple[_Count, float]] = []
        keys = _keys(access_key, host)
        for key, rule in keys[:1] if keys[0][0] in self._known else keys:
            count = self._counts.get(key)
            if count is None:
                continue
            if now_ms - count.last_ms > FORGET_MS:
                del self._counts[key]
            elif count.failures >= rule.free:
                delay_ms = FIRST_DELAY_MS * 2.0 ** min(count.failures - rule.free, 20)
                begin_ms = max(now_ms, count.next_ms)
                turns.append((count, begin_ms + min(delay_ms, rule.delay_ms_max)))
        if not turns:
            return 0.0
        wait_ms = max(turn_ms for _, turn_ms in turns) - now_ms
        if wait_ms > WAIT_MS_MAX or self.waiting >= WAITING_MAX:
            raise TooManyAttemptsError(min(wait_ms, WAIT_MS_MAX))
        for count, turn_ms in turns:
            count.next_ms = turn_ms
        return wait_ms

    def failed(self, access_key: str, host: str) -> None:
        """Counts a failure."""
        now_ms = self._clock.monotonic_ms()
        for key, _ in _keys(access_key, host):
            count = self._counts.get(key)
            if count is None or now_ms - count.last_ms > FORGET_MS:
                self._counts[key] = _Count(1, now_ms)
            else:
                count.failures += 1
                count.last_ms = now_ms
            self._counts.move_to_end(key)
        while len(self._counts) > ENTRIES_MAX:
            self._counts.popitem(last=False)

    def succeeded(self, access_key: str, host: str) -> None:
        """Ends the count of a user at an address."""
        pair = access_key, host
        self._counts.pop(pair, None)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)


def _keys(access_key: str, host: str) -> tuple[tuple[tuple[str, str], _Rule], ...]:
    """Returns the keys of an attempt's counts; the pair is the first."""
    return (((access_key, host), PAIR), ((access_key, ""), USER), (("", host), HOST))

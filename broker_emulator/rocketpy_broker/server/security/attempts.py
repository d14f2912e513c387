"""Delays of sign-in attempts after failures, against guessed secret keys.

Failures count for a user at an address, for the user, and for the address. Above the free number
each further attempt waits, longer with each failure. Attempts wait one after the other, so more
connections are no faster. All users of an address, and all addresses of a user, share a short wait.
It grows with the attempts that wait. Guesses from elsewhere do not keep a user out:

- A user at an address where it has signed in does not share that wait.
- A user at an address where it has not failed waits only for attempts from such addresses.

An IPv6 address counts as its network of 2^64 addresses, since one host may have them all. State:
the failures and the addresses of users, in memory; the oldest are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from urllib.parse import unquote

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.security.errors import TooManyAttemptsError

ENTRIES_MAX = 10_000
# A count ends after this time without a failure.
FORGET_MS = 600_000
FIRST_DELAY_MS = 100
# An attempt that would wait longer is refused at once.
WAIT_MS_MAX = 30_000
# Attempts that wait at a time, in all and of one address.
WAITING_MAX, WAITING_OF_HOST = 1_024, 64
# In a count's key, in place of an address: all addresses, and addresses without failures.
_ALL, _NEW = "", "(new)"


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
        self._waiting = Shares(WAITING_OF_HOST, WAITING_MAX)

    @property
    def waiting(self) -> int:
        """The number of attempts that wait."""
        return self._waiting.total

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
        for key, rule in self._rules(access_key, host, now_ms):
            count = self._current(key, now_ms)
            if count is not None and count.failures >= rule.free:
                delay_ms = FIRST_DELAY_MS * 2.0 ** min(count.failures - rule.free, 20)
                begin_ms = max(now_ms, count.next_ms)
                turns.append((count, begin_ms + min(delay_ms, rule.delay_ms_max)))
        if not turns:
            return 0.0
        wait_ms = max(turn_ms for _, turn_ms in turns) - now_ms
        if wait_ms > WAIT_MS_MAX or not self._waiting.has_space(host):
            raise TooManyAttemptsError(min(wait_ms, WAIT_MS_MAX))
        for count, turn_ms in turns:
            count.next_ms = turn_ms
        return wait_ms

    @contextmanager
    def waits(self, host: str) -> Iterator[None]:
        """Counts an attempt as waiting while the block runs."""
        self._waiting.change(host, 1)
        try:
            yield
        finally:
            self._waiting.change(host, -1)

    def _rules(
        self, access_key: str, host: str, now_ms: float
    ) -> Iterator[tuple[tuple[str, str], _Rule]]:
        """Yields the keys and rules of the counts for which an attempt waits."""
        pair = access_key, host
        yield pair, PAIR
        if pair not in self._known:
            has_failed = self._current(pair, now_ms) is not None
            yield (access_key, _ALL if has_failed else _NEW), USER
            yield (_ALL, host), HOST

    def _current(self, key: tuple[str, str], now_ms: float) -> _Count | None:
        """Returns a count that has not ended."""
        count = self._counts.get(key)
        if count is not None and now_ms - count.last_ms > FORGET_MS:
            del self._counts[key]
            return None
        return count

    def failed(self, access_key: str, host: str) -> None:
        """Counts a failure."""
        now_ms = self._clock.monotonic_ms()
        of_user = ((access_key, each) for each in (host, _ALL, _NEW))
        for key in (*of_user, (_ALL, host)):
            count = self._current(key, now_ms)
            if count is None:
                self._counts[key] = _Count(1, now_ms)
            else:
                count.failures += 1
                count.last_ms = now_ms
            self._counts.move_to_end(key)
        while len(self._counts) > ENTRIES_MAX:
            self._counts.popitem(last=False)

    def succeeded(self, access_key: str, host: str) -> None:
        """Ends the count of a user at an address, and remembers that pair."""
        pair = access_key, host
        self._counts.pop(pair, None)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)


def host_of(peer: str) -> str:
    """Returns the address of a peer in gRPC's notation; for IPv6 its network of 2^64 addresses."""
    host = peer.rpartition(":")[0] or peer
    kind, _, text = host.partition(":")
    try:
        address = IPv6Address(unquote(text).strip("[]"))
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return f"{kind}:{address.ipv4_mapped}"
    return f"{kind}:{IPv6Network((int(address), 64), strict=False)}"

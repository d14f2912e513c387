"""One line a peer and minute for calls that fail as no call should. Lives in memory.

The first failure of each place in the code has its trace; a line for each of the others would let
one client fill the disk.
"""

from __future__ import annotations

import logging
import traceback
from collections import OrderedDict
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock

logger = logging.getLogger(__name__)
INTERVAL_MS = 60_000
PEERS_MAX = 1_000
PLACES_MAX = 100
TEXT_MAX = 200


@dataclass(slots=True)
class _Peer:
    silent_until_ms: float
    withheld: int = 0


class PeerLines:
    """Lets a line about a peer into the log once a minute. Ports do not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def due(self, peer: str) -> int | None:
        """How many lines were withheld since the last one; None where this one is to be, too."""
        name, now_ms = host_of(peer), self._clock.monotonic_ms()
        known = self._peers.get(name)
        if known is not None and now_ms < known.silent_until_ms:
            known.withheld += 1
            return None
        self._peers[name] = _Peer(now_ms + INTERVAL_MS)
        self._peers.move_to_end(name)
        while len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
        return known.withheld if known is not None else 0


def host_of(peer: str) -> str:
    """Returns a peer without its port: each connection has another."""
    return peer.rpartition(":")[0] or peer


class FailureLog:
    """What has been told of which peer."""

    def __init__(self, clock: Clock) -> None:
        self._peers = PeerLines(clock)
        self._places: set[str] = set()

    def tell(self, peer: str, method: str, error: Exception) -> None:
        """Logs that a call of `peer` met `error`, or count it."""
        withheld = self._peers.due(peer)
        if withheld is None:
            return
        place = _place(error)
        logger.error(
            "%s failed for %s with %s at %s: %s; %d more since the last such line",
            method,
            host_of(peer),
            type(error).__name__,
            place,
            str(error)[:TEXT_MAX].replace("\n", " "),
            withheld,
            exc_info=error if self._is_new(place) else None,
        )

    def _is_new(self, place: str) -> bool:
        if place in self._places or len(self._places) == PLACES_MAX:
            return False
        self._places.add(place)
        return True


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "an unknown place"
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"

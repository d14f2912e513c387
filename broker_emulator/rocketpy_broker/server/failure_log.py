"""One line a peer and minute for calls that fail as no call should. Lives in memory.

The first failure of each place in the code has its trace; a line for each of the others would let
one client fill the disk.
"""

from __future__ import annotations

import logging
import traceback
from collections import OrderedDict
from dataclasses import dataclass

from rocketpy_broker.clock import Clock

logger = logging.getLogger(__name__)
INTERVAL_MS = 60_000
PEERS_MAX = 1_000
PLACES_MAX = 100
TEXT_MAX = 200


@dataclass(slots=True)
class _Peer:
    silent_until_ms: float
    withheld: int = 0


class FailureLog:
    """What has been told of which peer. Ports do not count: each connection has another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._places: set[str] = set()

    def tell(self, peer: str, method: str, error: Exception) -> None:
        """Log that a call of `peer` met `error`, or count it."""
        name, now_ms = peer.rpartition(":")[0] or peer, self._clock.monotonic_ms()
        known = self._peers.get(name)
        if known is not None and now_ms < known.silent_until_ms:
            known.withheld += 1
            return
        withheld = known.withheld if known is not None else 0
        self._peers[name] = _Peer(now_ms + INTERVAL_MS)
        self._peers.move_to_end(name)
        while len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
        place = _place(error)
        logger.error(
            "%s failed for %s with %s at %s: %s; %d more since the last such line",
            method,
            name,
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

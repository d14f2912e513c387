"""Log lines for failures that peers cause, few per peer and minute.

The first failure at each place in the code has its trace. A line for each failure would let one
client fill the disk.
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
    until_ms: float
    lines: int = 1
    withheld: int = 0


class PeerLines:
    """A permit for `lines_max` log lines per peer and minute, regardless of the port."""

    def __init__(self, clock: Clock, lines_max: int = 1) -> None:
        self._clock = clock
        self._lines_max = lines_max
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def due(self, peer: str) -> int | None:
        """Returns the number of lines withheld before this one; None if it is withheld, too."""
        name, now_ms = host_of(peer), self._clock.monotonic_ms()
        known = self._peers.get(name)
        if known is not None and now_ms < known.until_ms:
            if known.lines < self._lines_max:
                known.lines += 1
                return 0
            known.withheld += 1
            return None
        self._peers[name] = _Peer(now_ms + INTERVAL_MS)
        self._peers.move_to_end(name)
        while len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
        return known.withheld if known is not None else 0


def host_of(peer: str) -> str:
    """Returns a peer without its port, which differs for each connection."""
    return peer.rpartition(":")[0] or peer


class ConnectionLog:
    """The log of connections that the server closes, by peer."""

    def __init__(self, clock: Clock) -> None:
        self._peers = PeerLines(clock)

    def closed(self, peer: str, reason: str) -> None:
        """Logs the end of a connection of `peer`, or counts it as withheld."""
        withheld = self._peers.due(peer)
        if withheld is not None:
            logger.warning(
                "closed a connection of %s: %.300s; %d more since the last such line",
                *(host_of(peer), reason, withheld),
            )


class FailureLog:
    """The log of unexpected failures, by peer and by place in the code."""

    def __init__(self, clock: Clock) -> None:
        self._peers = PeerLines(clock)
        self._places: set[str] = set()

    def log(self, peer: str, method: str, error: Exception) -> None:
        """Logs `error` of a call of `peer`, or counts it as withheld."""
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

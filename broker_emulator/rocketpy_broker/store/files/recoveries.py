"""The file `rocketpy/recoveries`: the log's end at starts after a crash.

It has at most 64 recoveries, oldest first, and then a CRC; all of it is stored twice. Each recovery
has a random id and the end of the log in bytes. A client keeps the id of the newest one. Later ones
give it the offset from which a queue may hold other messages than before. A power cut with
ASYNC_FLUSH ends the log below positions that readers have seen, and offsets are assigned again. A
killed process leaves the log whole, so its recovery removes nothing. The first start of a store
also adds an entry, so each client has one. A slave has the recoveries of its master, and its
promotion adds one: the old master may have had more messages.

A crash leaves the old file, or the file with its new entry. The entry is on disk before the broker
serves anything; a killed start adds another one. Each start reads the file. A file with two damaged
copies is replaced by an empty one: earlier recoveries are then unknown.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreError
from rocketpy_broker.store.files.copies import COPIES, replace_copies, sound_copy
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.crc import body_crc

logger = logging.getLogger(__name__)
ID_BYTES = 8
RECOVERIES_MAX = 64


class TruncatedError(StoreError):
    """The messages at the position of a pull are no longer the ones it was planned for."""

    code = ResponseCode.QUERY_NOT_FOUND

    def __init__(self, topic: str, queue_id: int, cut_offset: int) -> None:
        super().__init__(
            f"a power cut or a promotion took the messages of queue {queue_id} of topic {topic!r} "
            f"from offset {cut_offset} on, and the queue has other messages there now. Request its "
            "offsets again"
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery: its id, and the end of the log at that time."""

    recovery_id: str
    log_end: int


class Recoveries:
    """The recoveries of one store; none before `started`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[Recovered] = []
        # The slave is promoted: it has no master any more.
        self._is_promoted = False

    @property
    def newest_id(self) -> str:
        """The id of the last recovery; empty before the first start has finished."""
        return self._all[-1].recovery_id if self._all else ""

    def started(self, log_end: int, *, abnormal: bool) -> None:
        """Adds a recovery after a crash or at the first start. Blocks. Raises OSError."""
        self._all = self._load()
        if abnormal or not self._all:
            self.add(log_end)

    def add(self, log_end: int) -> None:
        """Adds a recovery: messages after `log_end` are new. Blocks. Raises OSError."""
        self._replace([*self._all, Recovered(secrets.token_hex(ID_BYTES), log_end)])

    def promoted(self, log_end: int) -> None:
        """Adds the recovery of a promotion; `adopt` does nothing later. Raises OSError."""
        self._is_promoted = True
        self.add(log_end)

    @property
    def known(self) -> list[tuple[str, int]]:
        """Id and log end of each recovery, oldest first."""
        return [(each.recovery_id, each.log_end) for each in self._all]

    def adopt(self, known: Iterable[tuple[str, int]]) -> bool:
        """Takes over the recoveries of a slave's master; False after the slave's promotion.

        Blocks. Raises OSError.
        """
        adopted = [Recovered(*each) for each in known]
        if adopted and adopted != self._all and not self._is_promoted:
            self._replace(adopted)
        return not self._is_promoted

    def _replace(self, recoveries: list[Recovered]) -> None:
        kept = recoveries[-RECOVERIES_MAX:]
        replace_copies(self._path, _copy_of(kept))
        self._all = kept

    def log_end_since(self, recovery_id: str) -> int | None:
        """Returns the lowest log end of the recoveries after `recovery_id`.

        None if there are none, or if the id is unknown.
        """
        if recovery_id in {"", self.newest_id}:
            return None
        ids = [each.recovery_id for each in self._all]
        if recovery_id not in ids:
            return None
        later = self._all[ids.index(recovery_id) + 1 :]
        return min((each.log_end for each in later), default=None)

    def _load(self) -> list[Recovered]:
        if not self._path.exists():
            return []
        data = self._path.read_bytes()
        copy = sound_copy(self._path, data, len(data) // COPIES, lambda copy: bool(_parsed(copy)))
        if copy is not None:
            return _parsed(copy)
        logger.error(
            "%s is damaged and starts empty: queries are not notified of losses in power cuts "
            "before this start",
            self._path,
        )
        return []


def _copy_of(recoveries: list[Recovered]) -> bytes:
    text = "".join(f"{each.recovery_id} {each.log_end}\n" for each in recoveries).encode()
    return text + f"{body_crc(text):08x}\n".encode()


def _parsed(copy: bytes) -> list[Recovered]:
    """Returns the content of one copy; an empty list if it is damaged."""
    try:
        *lines, _ = copy.decode("ascii").splitlines()
        pairs = [line.split(" ") for line in lines]
        found = [Recovered(recovery_id, int(end)) for recovery_id, end in pairs]
    except ValueError:
        return []
    return found if copy == _copy_of(found) else []

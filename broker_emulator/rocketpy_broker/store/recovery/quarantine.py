"""The folder `rocketpy/quarantine`: what recovery and reading took out of the store, kept apart.

Nothing is ever read from here, and nobody deletes it but people. Each file is named by what it
was, where it lay and what it holds, so a recovery that is run again adds nothing. A crash leaves a
copy whole or not at all.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record.crc import body_crc

logger = logging.getLogger(__name__)


# Of more damaged places the program's log has their number only, each time it is ten times as high.
NAMED_MAX = 20


class Quarantine:
    """The folder; made with its first file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damage_count = 0

    def keep(self, name: str, data: memoryview) -> Path:
        """Copys `data` into a file named by `name` and its CRC, once. Raises OSError."""
        path = self.folder / f"{name}-{body_crc(data):08x}"
        if not path.exists():
            durable.make_folder(self.folder)
            durable.replace_bytes(path, data)
        return path

    def keep_damage(self, damage: Damage, data: memoryview) -> Path:
        """Copys damaged bytes of the log, and say so in the program's log. Raises OSError."""
        copy = self.keep(f"{damage.offset:020d}.damaged", data)
        self._damage_count += 1
        if self._damage_count > NAMED_MAX:
            if self._damage_count == 10 ** (len(str(self._damage_count)) - 1):
                self.log_count()
            return copy
        logger.error(
            "%s: %d bytes from log offset %d on are damaged (%s); copied to %s",
            damage.path,
            damage.length,
            damage.offset,
            damage.reason,
            copy,
        )
        return copy

    def log_count(self) -> None:
        """Writes into the program's log how many places were damaged, where not all are named."""
        if self._damage_count > NAMED_MAX:
            logger.error(
                "%d places of the log were damaged, of which the first %d are named here; "
                "all are copied to %s",
                self._damage_count,
                NAMED_MAX,
                self.folder,
            )

    def move(self, path: Path, name: str) -> Path:
        """Moves a file or folder here, as `name` or with a number behind it. Raises OSError."""
        durable.make_folder(self.folder)
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
        target = next(place for place in map(self.folder.joinpath, names) if not place.exists())
        durable.move(path, target)
        return target

"""The folder `rocketpy/quarantine`: copies of removed and damaged bytes, and moved files.

The broker never reads or deletes these files; only operators delete them. Each file name has the
kind, position and CRC of its content, so a repeated recovery adds no file. A crash leaves a whole
copy or none.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record.crc import body_crc

logger = logging.getLogger(__name__)


# Further damages are only counted; the count is logged at each power of ten.
NAMED_MAX = 20


class Quarantine:
    """The folder, created with its first file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damage_count = 0

    def keep(self, name: str, data: memoryview) -> Path:
        """Copies `data` into a file named by `name` and its CRC, once. Raises OSError."""
        path = self.folder / f"{name}-{body_crc(data):08x}"
        if not path.exists():
            durable.make_folder(self.folder)
            durable.replace_bytes(path, data)
        return path

    def keep_damage(self, damage: Damage, data: memoryview) -> Path:
        """Copies damaged bytes of the log, and logs an error. Raises OSError."""
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
        """Logs the number of damaged places if some were not logged."""
        if self._damage_count > NAMED_MAX:
            logger.error(
                "%d places of the log were damaged, of which the first %d have a log line each; "
                "all are copied to %s",
                self._damage_count,
                NAMED_MAX,
                self.folder,
            )

    def move(self, path: Path, name: str) -> Path:
        """Moves a file or folder here, as `name` or with a number after it. Raises OSError."""
        durable.make_folder(self.folder)
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
        target = next(place for place in map(self.folder.joinpath, names) if not place.exists())
        durable.move(path, target)
        return target

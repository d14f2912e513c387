"""Journal file of JSON lines with checksums.

Lines are appended; the file is replaced as a whole when it is too long. Line: CRC-32 of the JSON
text as 8 hexadecimal digits, a space, JSON, a line feed. A crash during an append leaves a torn
tail, which `load` skips and `append` cuts. A crash during a replacement leaves the old or the new
file. `load` logs damaged lines before the tail, keeps a copy of the file as `<name>.broken`, and
reads the sound lines. RocketMQ has no such files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.store.files import durable
from rocketpy_proto.record.crc import body_crc

logger = logging.getLogger(__name__)
_CRC_DIGITS = 8
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The objects of all readable lines; `sound_count` of them precede any damage."""

    lines: list[dict[str, Any]]
    sound_count: int

    @property
    def is_damaged(self) -> bool:
        """True if readable lines follow a damaged one."""
        return self.sound_count < len(self.lines)


class Journal:
    """One journal file; every line is a JSON object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    def load(self) -> JournalContent | None:
        """Returns the content of the file; None if the file does not exist. Blocks.

        Raises ConfigFileError if the file or all its lines cannot be read. Raises OSError if the
        copy of a damaged file cannot be written.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigFileError(self.path, str(error)) from error
        content = self._read(data)
        if data and not content.lines:
            raise ConfigFileError(self.path, "no line of it has the right checksum")
        if self._end < len(data):
            left = len(data) - self._end
            logger.warning("%s: %d bytes of a torn tail are dropped", self.path, left)
        if content.is_damaged:
            broken = self.path.with_name(self.path.name + ".broken")
            durable.replace_bytes(broken, data)
            logger.critical("%s: lines are damaged; it is kept as %s", self.path, broken.name)
        return content

    def _read(self, data: bytes) -> JournalContent:
        lines: list[dict[str, Any]] = []
        sound_count: int | None = None
        position, is_sound = 0, True
        for line in data.splitlines(keepends=True):
            position += len(line)
            value = _decode(line)
            if value is None:
                is_sound = False
                continue
            if not is_sound and sound_count is None:
                sound_count = len(lines)
            lines.append(value)
            self._end = position
        return JournalContent(lines, len(lines) if sound_count is None else sound_count)

    def append(self, values: Iterable[object]) -> None:
        """Appends lines durably. Blocks. Raises OSError; then retry with the same lines."""
        data = b"".join(map(_encode, values))
        durable.append_bytes(self.path, data, self._end)
        self._end += len(data)

    def replace(self, values: Iterable[object]) -> None:
        """Replaces all lines. Blocks. Raises OSError; then the old file remains."""
        end = 0
        with durable.replacing(self.path) as file:
            for line in map(_encode, values):
                file.write(line)
                end += len(line)
        self._end = end


def _encode(value: object) -> bytes:
    text = _ENCODER.encode(value).encode("ascii")
    return b"%08x %b\n" % (body_crc(text), text)


def _decode(line: bytes) -> dict[str, Any] | None:
    """Returns the object of a line; None if the line is torn or damaged."""
    digits, text = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or digits != b"%08x" % body_crc(text):
        return None
    value: dict[str, Any] = json.loads(text)
    return value

"""A journal: a file of lines that is added to, and replaced whole when it has grown too long.

Line: the CRC-32 of what follows as 8 hexadecimal digits, a space, JSON, a line feed. A crash while
adding leaves a torn tail, which `load` passes over and `append` cuts. A crash while replacing
leaves the old or the new file. A line that is damaged before the tail is named, and kept apart in
`<name>.broken`; the others are read. RocketMQ keeps no such files.
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
    """The objects of the lines that can be read; `sound_count` of them lie before any damage."""

    lines: list[dict[str, Any]]
    sound_count: int

    @property
    def is_damaged(self) -> bool:
        """True if lines are missing."""
        return self.sound_count < len(self.lines)


class Journal:
    """One file. Every line is a JSON object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    def load(self) -> JournalContent | None:
        """What the file holds; None where there is none. Blocks.

        Raises ConfigFileError where it cannot be read, or not a line of it can; OSError where what
        is damaged cannot be kept apart.
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
        """Adds lines to the file, durably. Blocks. Raises OSError; then call it again with them."""
        data = b"".join(map(_encode, values))
        durable.append_bytes(self.path, data, self._end)
        self._end += len(data)

    def replace(self, values: Iterable[object]) -> None:
        """Let the file hold these lines. Blocks. Raises OSError; the old file is then kept."""
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
    """Returns the object of a line; None where it is not whole."""
    digits, text = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or digits != b"%08x" % body_crc(text):
        return None
    value: dict[str, Any] = json.loads(text)
    return value

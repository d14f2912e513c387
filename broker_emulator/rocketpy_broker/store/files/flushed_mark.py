"""The file `rocketpy/flushed`: the flushed end of the log, and its writer.

It has one record of 24 bytes with a CRC:

    +-----------------+------------------+-----------+-------------+-----------+
    | magic "RKPY" u32| flushed    int64 | pid  int32| clean  int32| crc  int32|    big-endian
    +-----------------+------------------+-----------+-------------+-----------+

It is written in place after each flush, without a flush of its own. A killed process loses nothing
of it; a power cut loses the last second at most. After a failed flush, the operating system treats
the file as written, so the next flush writes it again. For recovery, a bad record below the mark is
damage. One above it is the torn tail of a crash. Only the store uses this module.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_proto.record.crc import body_crc

_FIELDS = struct.Struct(">IqiiI")
_CRC = struct.Struct(">I")
_MAGIC = 0x524B5059
_PROGRAM = "rocketpy"


def abort_text(pid: int) -> str:
    """Returns the text of the process's abort marker; RocketMQ's marker holds only the pid."""
    return f"{_PROGRAM} {pid}"


def is_our_abort_text(text: str | None) -> bool:
    """True if this program left the marker: another broker would have replaced its text."""
    return text is not None and text.startswith(_PROGRAM)


@dataclass(frozen=True, slots=True)
class FlushedState:
    """The file's content: the flushed offset in bytes, the pid, and the clean-stop flag."""

    flushed: int
    pid: int
    clean: bool


class FlushedMark:
    """The open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._content = memoryview(b"")
        # A flush on another thread must not restore older content.
        self._writing = threading.Lock()
        self._is_in_doubt = False

    def load(self) -> FlushedState | None:
        """Returns the mark of the last run; None if there is no file, or it is not whole."""
        data = self._path.read_bytes() if self._path.exists() else b""
        if len(data) != _FIELDS.size:
            return None
        magic, flushed, pid, clean, crc = _FIELDS.unpack(data)
        if magic != _MAGIC or crc != body_crc(data[: -_CRC.size]):
            return None
        return FlushedState(flushed, pid, bool(clean))

    def open(self) -> None:
        """Opens the file for `write`. Raises OSError."""
        durable.make_folder(self._path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, durable.FILE_MODE)
        durable.sync_folder(self._path.parent)

    def write(self, mark: FlushedState) -> None:
        """Replaces the content. Raises OSError."""
        assert self._descriptor is not None
        head = _FIELDS.pack(_MAGIC, mark.flushed, mark.pid, mark.clean, 0)[: -_CRC.size]
        with self._writing:
            self._content = memoryview(head + _CRC.pack(body_crc(head)))
            durable.write_whole(self._descriptor, self._content, 0)

    def flush(self) -> None:
        """Makes the content durable. Blocks. Raises OSError."""
        assert self._descriptor is not None
        if self._is_in_doubt:
            with self._writing:
                durable.write_whole(self._descriptor, self._content, 0)
        self._is_in_doubt = True
        os.fdatasync(self._descriptor)
        self._is_in_doubt = False

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""Frames of a connection, each one command.

    length 4 (of the rest) | form of the header 1 | header length 3 | header | body

The only state is the incomplete frame of a FrameDecoder. Source: docs/design/remoting.md section
1.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from rocketpy_proto.remoting.binary_header import decode_binary_header, encode_binary_header
from rocketpy_proto.remoting.command import RemotingCommand, Serialization
from rocketpy_proto.remoting.errors import RemotingFormatError, UnencodableRemotingError
from rocketpy_proto.remoting.json_header import decode_json_header, encode_json_header

_WHAT = "frame"
_LENGTH = struct.Struct(">i")
# Length, then form and length of the header in one number.
_PREFIX = struct.Struct(">iI")
_HEADER_LENGTH_BITS = 24
_HEADER_LENGTH_MASK = (1 << _HEADER_LENGTH_BITS) - 1
# RocketMQ's limit of a received frame, length included.
FRAME_BYTES_MAX = 16 * 1024 * 1024

_ENCODERS: Mapping[Serialization, Callable[[RemotingCommand, int], bytes]] = {
    Serialization.JSON: encode_json_header,
    Serialization.ROCKETMQ: encode_binary_header,
}
_DECODERS: Mapping[int, Callable[[memoryview, memoryview], RemotingCommand]] = {
    Serialization.JSON: decode_json_header,
    Serialization.ROCKETMQ: decode_binary_header,
}


def encode_frame(command: RemotingCommand, opaque: int | None = None) -> list[bytes | memoryview]:
    """Returns the frame's bytes in pieces to be written together; the body is not copied.

    A given `opaque` replaces the command's. Raises UnencodableRemotingError.
    """
    encode = _ENCODERS[command.serialization]
    header = encode(command, command.opaque if opaque is None else opaque)
    size = _PREFIX.size + len(header) + len(command.body)
    if size > FRAME_BYTES_MAX:
        raise UnencodableRemotingError(_WHAT, f"it has {size} bytes, limit {FRAME_BYTES_MAX}")
    form = command.serialization << _HEADER_LENGTH_BITS | len(header)
    head = _PREFIX.pack(size - _LENGTH.size, form) + header
    return [head, command.body] if len(command.body) else [head]


def decode_frame(frame: memoryview, header_bytes_max: int = FRAME_BYTES_MAX) -> RemotingCommand:
    """Returns the command of one whole frame. Raises RemotingFormatError.

    The command's body is a view of the frame.
    """
    if len(frame) < _PREFIX.size:
        raise RemotingFormatError(
            _WHAT, f"it has {len(frame)} bytes, but needs at least {_PREFIX.size}"
        )
    _, form = _PREFIX.unpack_from(frame)
    serialization, header_length = form >> _HEADER_LENGTH_BITS, form & _HEADER_LENGTH_MASK
    if header_length > header_bytes_max:
        raise RemotingFormatError(
            _WHAT, f"its header has {header_length} bytes, limit {header_bytes_max}"
        )
    header_end = _PREFIX.size + header_length
    if header_end > len(frame):
        raise RemotingFormatError(_WHAT, f"its header ends at byte {header_end} of {len(frame)}")
    decode = _DECODERS.get(serialization)
    if decode is None:
        raise RemotingFormatError(
            _WHAT, f"its header has the unknown serialization type {serialization}"
        )
    # A view, even an empty one, would keep the received bytes.
    body = frame[header_end:] if header_end < len(frame) else memoryview(b"")
    return decode(frame[_PREFIX.size : header_end], body)


class FrameDecoder:
    """A splitter of a connection's received bytes into commands.

    A frame received in one piece is not copied, a frame in several pieces once. The decoder keeps
    less than one frame, and checks a frame's length before it keeps any of it. Headers are parsed
    here, bodies are not. `header_bytes_max` limits the parsing time for untrusted peers.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._begun = bytearray()
        self._unread = memoryview(b"")
        self._failure: RemotingFormatError | None = None
        # The size of the frame of the last command.
        self.frame_bytes = 0

    def feed(self, data: bytes) -> Iterator[RemotingCommand]:
        """Returns the commands that `data` completes; the bodies stay views of `data`.

        The iterator yields the commands before invalid bytes, then raises RemotingFormatError. The
        caller then closes the connection; any later `feed` raises the same error.
        """
        if self._failure is None:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        return self._commands()

    @property
    def begun_bytes(self) -> int:
        """The bytes of an incomplete frame; the connection must not end in the middle of one."""
        return len(self._begun) + len(self._unread)

    def _commands(self) -> Iterator[RemotingCommand]:
        if self._failure is None:
            try:
                while (frame := self._next_frame()) is not None:
                    self.frame_bytes = len(frame)
                    yield decode_frame(frame, self._header_bytes_max)
            except RemotingFormatError as error:
                self._failure = error
                self._begun, self._unread = bytearray(), memoryview(b"")
        if self._failure is not None:
            raise self._failure

    def _next_frame(self) -> memoryview | None:
        """Returns the next whole frame; None if it is incomplete."""
        if not self._begun:
            if len(self._unread) >= _LENGTH.size:
                size = self._checked_size(self._unread)
                if len(self._unread) >= size:
                    return self._take(size)
            self._begun += self._take(len(self._unread))
            return None
        self._begin_up_to(_LENGTH.size)
        if len(self._begun) < _LENGTH.size:
            return None
        size = self._checked_size(self._begun)
        self._begin_up_to(size)
        if len(self._begun) < size:
            return None
        frame, self._begun = memoryview(self._begun).toreadonly(), bytearray()
        return frame

    def _begin_up_to(self, size: int) -> None:
        self._begun += self._take(max(size - len(self._begun), 0))

    def _take(self, count: int) -> memoryview:
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _checked_size(self, prefix: bytes | bytearray | memoryview) -> int:
        (length,) = _LENGTH.unpack_from(prefix)
        size = int(length) + _LENGTH.size
        if not _PREFIX.size <= size <= self._frame_bytes_max:
            raise RemotingFormatError(
                _WHAT,
                f"it has {size} bytes, accepted: {_PREFIX.size} to {self._frame_bytes_max}",
            )
        return size

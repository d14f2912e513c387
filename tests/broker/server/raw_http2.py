"""A client that speaks just enough HTTP/2 to begin gRPC calls and never finish them."""

from __future__ import annotations

import asyncio
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_HEADERS, ACKNOWLEDGED = 4, 1
INITIAL_WINDOW = 65_535
FRAME_BYTES_MAX = 16_384
_HEAD = struct.Struct(">I")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns one frame: length, kind, flags, stream, payload."""
    length = _HEAD.pack(len(payload))[1:]
    return length + bytes([kind, flags]) + _HEAD.pack(stream) + payload


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def headers(path: str) -> bytes:
    """Returns the header block of a call, every field as a literal that is not indexed."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(b"\0" + _text(name) + _text(fields[name]) for name in fields)


class RawConnection:
    """One connection; `ended` has the streams that the server has ended or reset."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.is_closed = False
        self._window = INITIAL_WINDOW
        self._windows: dict[int, int] = {}
        self._initial = INITIAL_WINDOW
        self._next = 1
        self._changed = asyncio.Event()

    async def open(self, port: int) -> None:
        """Connects, and reads what comes from now on."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(PREFACE + frame(SETTINGS, 0, 0))
        self._reading = asyncio.ensure_future(self._read())

    async def close(self) -> None:
        """Closes the connection."""
        self._reading.cancel()
        self._writer.close()

    def begin(self, path: str) -> int:
        """Begins a call; returns its stream."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        self._writer.write(frame(HEADERS, END_HEADERS, stream, headers(path)))
        return stream

    def reset(self, stream: int) -> None:
        """Cancels a call."""
        self._writer.write(frame(RESET, 0, stream, _HEAD.pack(8)))

    async def send(self, stream: int, data: bytes) -> None:
        """Sends as far as the server's windows allow; ends early where the call is ended."""
        left = memoryview(data)
        while left and stream not in self.ended and not self.is_closed:
            count = min(len(left), self._window, self._windows[stream], FRAME_BYTES_MAX)
            if count <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._window -= count
            self._windows[stream] -= count
            self._writer.write(frame(DATA, 0, stream, bytes(left[:count])))
            left = left[count:]
            await self._writer.drain()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(_HEAD.unpack(b"\0" + head[:3])[0])
                self._take(head[3], head[4], _HEAD.unpack(head[5:])[0], payload)
                self._changed.set()
        except (OSError, asyncio.IncompleteReadError):
            self.is_closed = True
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACKNOWLEDGED:
            self._take_settings(payload)
            self._writer.write(frame(SETTINGS, ACKNOWLEDGED, 0))
        elif kind == PING and not flags & ACKNOWLEDGED:
            self._writer.write(frame(PING, ACKNOWLEDGED, 0, payload))
        elif kind == WINDOW_UPDATE and stream:
            self._windows[stream] += _HEAD.unpack(payload)[0]
        elif kind == WINDOW_UPDATE:
            self._window += _HEAD.unpack(payload)[0]
        elif kind == RESET or (kind in (DATA, HEADERS) and flags & 1):
            self.ended.add(stream)
        elif kind == GO_AWAY:
            self.is_closed = True

    def _take_settings(self, payload: bytes) -> None:
        for number, value in struct.iter_unpack(">HI", payload):
            if number == 4:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial
                self._initial = value

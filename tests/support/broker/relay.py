"""A TCP relay before a broker, which a test slows, holds and cuts.

It listens at 127.0.0.2, at the ports of a broker of 127.0.0.1: a slave that reaches its master
through the relay then finds the master's port for slaves there, too.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from dataclasses import dataclass
from types import TracebackType

HOST, TARGET = "127.0.0.2", "127.0.0.1"
RECEIVED_BYTES_MAX = 64 << 10
# A connection that is cut passes less than 2 to the power of a random number up to this one.
CUT_BITS_MAX = 18
# A slow link passes the bytes of this time at once.
PIECE_SECONDS = 0.05
# Closes a connection with a reset.
LINGER = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Pair:
    """The two sockets of a connection, and the bytes that pass before its cut."""

    client: socket.socket
    server: socket.socket
    left_bytes: int | None
    is_cut: bool = False

    def end(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                one.shutdown(socket.SHUT_RDWR)


class Relay:
    """A relay for ports of one broker; `cuts` counts the connections that it has cut.

    `bytes_per_second` slows each direction of each connection.
    """

    def __init__(self, *ports: int | None) -> None:
        self.bytes_per_second: int | None = None
        self.cuts = 0
        self._dice: random.Random | None = None
        self._is_open = True
        self._moves = threading.Event()
        self._moves.set()
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._listeners = [socket.create_server((HOST, port or 0)) for port in ports]
        self._threads = [
            threading.Thread(target=self._accept, args=(one,)) for one in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    # --- Faults ---

    def hold(self) -> None:
        """Passes nothing; connections stay open, and new ones are accepted."""
        self._moves.clear()

    def cut(self) -> None:
        """Ends all connections, and each new one at once."""
        self._is_open = False
        self._end_all()

    def cut_often(self, dice: random.Random) -> None:
        """Ends all connections, and each new one after a random number of bytes."""
        self._dice = dice
        self._end_all()

    def heal(self) -> None:
        """Passes everything again."""
        self.bytes_per_second, self._dice, self._is_open = None, None, True
        with self._lock:
            for pair in self._pairs:
                pair.left_bytes = None
        self._moves.set()

    def _end_all(self) -> None:
        with self._lock:
            for pair in self._pairs:
                pair.end()

    # --- Connections ---

    def _accept(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        # The loop ends when its socket is shut down.
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                thread = threading.Thread(target=self._serve, args=(client, port))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, port: int) -> None:
        # A broker that is down refuses the connection.
        with contextlib.suppress(OSError), client, socket.create_connection((TARGET, port)) as far:
            self._join(client, far)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        dice = self._dice
        left_bytes = None if dice is None else dice.randrange(1 << dice.randint(1, CUT_BITS_MAX))
        pair = _Pair(client, server, left_bytes)
        with self._lock:
            self._pairs.add(pair)
            if not self._is_open:
                pair.end()
        back = threading.Thread(target=self._pump, args=(pair, server, client))
        back.start()
        self._pump(pair, client, server)
        back.join()
        with self._lock:
            self._pairs.remove(pair)
            self.cuts += pair.is_cut

    def _pump(self, pair: _Pair, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(self._piece_bytes()):
                self._moves.wait()
                rate = self.bytes_per_second
                if rate is not None:
                    threading.Event().wait(len(data) / rate)
                passed = self._passed(pair, len(data))
                sink.sendall(data[:passed])
                if passed < len(data):
                    break
        pair.end()

    def _passed(self, pair: _Pair, count: int) -> int:
        """Returns how many of `count` bytes pass before the cut."""
        with self._lock:
            if pair.left_bytes is None:
                return count
            pair.is_cut = count > pair.left_bytes
            passed = min(count, pair.left_bytes)
            pair.left_bytes -= passed
            return passed

    def _piece_bytes(self) -> int:
        rate = self.bytes_per_second
        return RECEIVED_BYTES_MAX if rate is None else max(int(rate * PIECE_SECONDS), 1)

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.heal()
        self.cut()
        for thread in self._threads:
            thread.join()

"""Where messages come from: a process's address, and unique ids for whole batches.

Source: spec/storage.md section 5.2. An id is made of

    IPv4 (4) | process id (2) | random per process (4) | ms in the month (4) | counter (2)

as upper-case hex. The last six bytes are one ascending number, so ids of a process never repeat;
a restarted process gets another random part.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import threading
from functools import cache

import numpy as np
import pyarrow as pa

from rocketpy_proto.record import Host, fixed_width_strings, hex_digits

COUNTER_BITS = 16
_NUMBER_BYTES = 6
_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


class UniqueKeys:
    """Makes ids; one per process is enough, and it may be shared by threads."""

    def __init__(self, host: Host) -> None:
        pid = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        prefix = np.frombuffer(host.to_bytes()[:4] + pid + os.urandom(4), np.uint8)
        self._prefix_digits = hex_digits(prefix[None, :])
        self._next = 0
        self._lock = threading.Lock()

    def take(self, count: int, now_ms: int) -> pa.Array:
        """`count` new ids as a string array."""
        with self._lock:
            first = max(self._next, _month_ms(now_ms) << COUNTER_BITS)
            self._next = first + count
        numbers = np.arange(first, first + count, dtype=">u8").view(np.uint8).reshape(count, 8)
        digits = hex_digits(numbers[:, -_NUMBER_BYTES:])
        prefix = np.broadcast_to(self._prefix_digits, (count, self._prefix_digits.shape[1]))
        return fixed_width_strings(np.hstack((prefix, digits)))


def _month_ms(now_ms: int) -> int:
    """Milliseconds since the month began, local time, as RocketMQ's clients count them."""
    now = dt.datetime.fromtimestamp(now_ms / 1000).astimezone()
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(begin.timestamp() * 1000)


@cache
def born_host() -> Host:
    """This machine's address as a record carries it; found once a process."""
    try:
        address = ipaddress.IPv4Address(socket.gethostbyname(socket.gethostname()))
    except (OSError, ValueError):
        address = _LOOPBACK
    return Host(address, 0)


@cache
def unique_keys() -> UniqueKeys:
    """This process's maker of ids."""
    return UniqueKeys(born_host())


# A forked process is another one, and needs a random part of its own.
os.register_at_fork(after_in_child=unique_keys.cache_clear)

"""Unique ids for message batches, and the process's address.

Source: docs/design/storage.md section 5.2. An id is made of

    IPv4 (4) | process id (2) | random per process (4) | ms in the month (4) | counter (2)

as upper-case hex. The last six bytes are one ascending number, so ids of a process never repeat. A
restarted process gets another random part. A row that is written again keeps its id. The first ten
bytes of such an id are a hash of the task, the last six the row's number. RocketMQ's tools read a
time from the last six bytes: here the start of the month, from which they search.

UniqueKeys keeps the next number under a lock; one instance per process, recreated after a fork.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import socket
import threading
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record import Host, fixed_width_strings, hex_digits

COUNTER_BITS = 16
_NUMBER_BYTES = 6
_TASK_BYTES = 10
_DIGIT_VALUES = np.full(256, -1, np.int64)
_DIGIT_VALUES[np.frombuffer(b"0123456789ABCDEF", np.uint8)] = np.arange(16)
_DIGIT_WEIGHTS = 16 ** np.arange(2 * _NUMBER_BYTES - 1, -1, -1, dtype=np.int64)
_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


class UniqueKeys:
    """A generator of ids; threads may share it, and one per process is enough."""

    def __init__(self, host: Host) -> None:
        pid = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        prefix = np.frombuffer(host.to_bytes()[:4] + pid + os.urandom(4), np.uint8)
        self._prefix_digits = hex_digits(prefix[None, :])
        self._next = 0
        self._lock = threading.Lock()

    def take(self, count: int, now_ms: int) -> pa.Array:
        """Returns `count` new ids as a string array."""
        with self._lock:
            first = max(self._next, _month_ms(now_ms) << COUNTER_BITS)
            self._next = first + count
        return _joined(self._prefix_digits, np.arange(first, first + count))


def task_digits(task: tuple[str, int, int]) -> str:
    """Returns the common prefix of the ids of a task's rows; see `row_keys`."""
    hashed = hashlib.blake2b(
        "\0".join(map(str, task)).encode(), digest_size=_TASK_BYTES, person=b"rocketpy rows"
    )
    return hashed.hexdigest().upper()


def row_keys(task: tuple[str, int, int], numbers: NDArray[np.int64]) -> pa.Array:
    """Returns the ids of a task's rows by their numbers, a string array; the same in each run.

    Writer, batch and partition identify the task. An id has 80 bits of their hash. Two of a billion
    tasks collide with a probability of one in a million.
    """
    digits = np.frombuffer(task_digits(task).encode(), np.uint8)
    return _joined(digits[None, :], numbers)


def row_numbers(keys: pa.StringArray, digits: str) -> NDArray[np.int64]:
    """Returns each id's row; -1 if the id is null or of no row of the task."""
    width = 2 * (_TASK_BYTES + _NUMBER_BYTES)
    is_own = pc.and_(pc.starts_with(keys, digits), pc.equal(pc.binary_length(keys), width))
    own = np.flatnonzero(is_own.fill_null(False).to_numpy(zero_copy_only=False))
    numbers = np.full(len(keys), -1, np.int64)
    if len(own):
        letters = b"".join(keys.take(pa.array(own)).cast(pa.binary()).to_pylist())
        table = np.frombuffer(letters, np.uint8).reshape(len(own), width)[:, 2 * _TASK_BYTES :]
        values = _DIGIT_VALUES[table]
        is_hex = (values >= 0).all(axis=1)
        numbers[own[is_hex]] = values[is_hex] @ _DIGIT_WEIGHTS
    return numbers


def _joined(prefix_digits: NDArray[np.uint8], numbers: NDArray[np.integer]) -> pa.Array:
    count = len(numbers)
    octets = numbers.astype(">u8").view(np.uint8).reshape(count, 8)
    digits = hex_digits(octets[:, -_NUMBER_BYTES:])
    prefix = np.broadcast_to(prefix_digits, (count, prefix_digits.shape[1]))
    return fixed_width_strings(np.hstack((prefix, digits)))


def _month_ms(now_ms: int) -> int:
    """Returns the milliseconds since the month began, local time, as RocketMQ's clients do."""
    now = dt.datetime.fromtimestamp(now_ms / 1000).astimezone()
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(begin.timestamp() * 1000)


@cache
def born_host() -> Host:
    """Returns this machine's address as a record carries it; looked up once per process."""
    try:
        address = ipaddress.IPv4Address(socket.gethostbyname(socket.gethostname()))
    except (OSError, ValueError):
        address = _LOOPBACK
    return Host(address, 0)


@cache
def unique_keys() -> UniqueKeys:
    """Returns this process's generator of ids."""
    return UniqueKeys(born_host())


# A forked process needs a random part of its own.
os.register_at_fork(after_in_child=unique_keys.cache_clear)

"""Hypothesis strategies for well-formed records with hostile content.

Every length fits and every body has its CRC, so brokers store and deliver the records. The rest is
as a producer may have written it: texts that are not UTF-8, properties that are not pairs, unknown
flags, bodies that are not compressed as declared, times of any year.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from rocketpy_proto.record.crc import body_crc
from rocketpy_proto.record.layout import HEADER_BY_SHAPE, MAGIC_V1, MAGIC_V2
from rocketpy_proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True)
class HostileRecord:
    """A record as its bytes."""

    topic: bytes
    body: bytes
    properties: bytes
    sys_flag: int
    born_ms: int
    store_ms: int
    numbers: tuple[int, int, int]
    hosts: tuple[bytes, bytes]
    is_v2: bool = False

    def encoded(self, queue_offset: int = 0, physical_offset: int = 0) -> bytes:
        """Returns its bytes in the log, with the fields that a broker sets."""
        shape = bool(self.sys_flag & BORN_HOST_V6), bool(self.sys_flag & STORE_HOST_V6)
        header = np.zeros(1, HEADER_BY_SHAPE[shape])
        is_v2 = self.is_v2 or len(self.topic) > 127
        length = struct.pack(">h" if is_v2 else ">b", len(self.topic))
        tail = length + self.topic + struct.pack(">h", len(self.properties)) + self.properties
        header["total_size"] = header.itemsize + len(self.body) + len(tail)
        header["magic"] = MAGIC_V2 if is_v2 else MAGIC_V1
        header["body_crc"], header["body_length"] = body_crc(self.body), len(self.body)
        header["queue_offset"], header["physical_offset"] = queue_offset, physical_offset
        header["sys_flag"] = self.sys_flag
        header["born_timestamp"], header["store_timestamp"] = self.born_ms, self.store_ms
        names = ("flag", "reconsume_times", "prepared_transaction_offset")
        for name, number in zip(names, self.numbers, strict=True):
            header[name] = number
        for name, host in zip(("born_host", "store_host"), self.hosts, strict=True):
            header[name] = np.void(host[: header.dtype[name].itemsize])
        return header.tobytes() + self.body + tail

    def sendable(self, topic: str) -> HostileRecord:
        """Returns the record as a client may send it to our broker: one topic, no transaction."""
        flags = self.sys_flag & ~(TRANSACTION_MASK | STORE_HOST_V6)
        return replace(self, topic=topic.encode(), sys_flag=flags)


def block_bytes(records: Sequence[HostileRecord]) -> tuple[bytes, bytes]:
    """Returns records back to back, and their sizes in wire form."""
    encoded = [record.encoded() for record in records]
    return b"".join(encoded), np.array([len(one) for one in encoded], ">i4").tobytes()


def by_arrow(codec: str, data: bytes) -> bytes:
    """Compresses data to a stream."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    compressed: bytes = sink.getvalue().to_pybytes()
    return compressed


CONTENT = b"what the producer gave " * 40
BOMB = bytes(3 << 20)
BODIES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            *(zlib.compress(CONTENT, level) for level in (0, 1, 5, 9)),
            *(by_arrow(codec, CONTENT) for codec in ("lz4", "zstd")),
            zlib.compress(CONTENT)[:-3],
            by_arrow("zstd", CONTENT)[:-3],
            zlib.compress(CONTENT) + b"and more",
            zlib.compress(BOMB),
            by_arrow("zstd", BOMB),
            bytes(5000),
        ]
    ),
)
# Pieces of properties, valid and invalid.
WORDS = st.sampled_from(
    [
        *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"__SHARDINGKEY", b"RETRY_TOPIC", b"region"),
        *(b" ", b"a b  c", b"\x00", b"k\x00ey", b"\n", b"||", "größe".encode()),
        *(b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80"),
    ]
)
PROPERTIES = st.lists(
    st.one_of(st.just(b"\x01"), st.just(b"\x02"), WORDS, st.binary(max_size=4)), max_size=20
).map(b"".join)
TOPICS = st.one_of(
    st.sampled_from([b"", b"T", b"\xff\xfe", b"a\x00b", b"%RETRY%" + b"x" * 200]),
    st.binary(max_size=127),
)
FLAGS = st.one_of(
    st.sampled_from([0x0, 0x1, 0x2, 0x101, 0x201, 0x301, 0x401, 0x701, 0x40, 0x80, 0x11, 0x31]),
    INT32,
)
HOSTS = st.one_of(st.just(bytes(20)), st.binary(min_size=20, max_size=20))
HOSTILE_RECORDS = st.builds(
    HostileRecord,
    topic=TOPICS,
    body=BODIES,
    properties=PROPERTIES,
    sys_flag=FLAGS,
    born_ms=INT64,
    store_ms=INT64,
    numbers=st.tuples(INT32, INT32, INT64),
    hosts=st.tuples(HOSTS, HOSTS),
    is_v2=st.booleans(),
)

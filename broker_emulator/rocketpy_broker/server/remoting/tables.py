"""Answers with large tables, encoded in parts.

A part takes some ms. The running call is charged for the parts and for the copies of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rocketpy_broker.errors import AnswerTooLargeError
from rocketpy_broker.services import call_memory
from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    Body,
    MessageQueue,
    encode_body,
    encode_entries,
    encode_with_part,
)

# The parts, and two copies while the answer is composed.
COPIES = 3
# A larger answer is composed in a thread.
LARGE_BYTES = 1 << 20


class AnswerSize:
    """The bytes of an answer that is encoded in parts."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Counts a part. Raises AnswerTooLargeError, KeptBytesError."""
        self._bytes += size
        if self._bytes > FRAME_BYTES_MAX:
            raise AnswerTooLargeError("the table of the answer", FRAME_BYTES_MAX)
        call_memory.keep(COPIES * self._bytes)


class TableText:
    """The entries of one table as JSON."""

    def __init__(self, size: AnswerSize | None = None) -> None:
        """Takes the `size` of an answer with several tables."""
        self._size = AnswerSize() if size is None else size
        self._parts: list[bytes] = []

    def add(self, entries: Mapping[str, Body] | Mapping[MessageQueue, Body | int]) -> None:
        """Adds entries. Raises AnswerTooLargeError, KeptBytesError, UnencodableRemotingError."""
        if entries:
            part = encode_entries(entries)
            self._size.add(len(part))
            self._parts.append(part)

    async def body(self, body: Body, name: str) -> bytes:
        """Returns a body with the entries as its table `name`."""

        def composed() -> bytes:
            return encode_with_part(body, name, b"{%s}" % b",".join(self._parts))

        if sum(map(len, self._parts)) <= LARGE_BYTES:
            return composed()
        return await asyncio.to_thread(composed)


async def encode_large(body: Body) -> bytes:
    """Returns a body of many entries, encoded in a thread. Raises UnencodableRemotingError."""
    return await asyncio.to_thread(encode_body, body)

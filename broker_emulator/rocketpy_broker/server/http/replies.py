"""Replies of the HTTP server that are written in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from aiohttp import web

from rocketpy_broker.runtime.scheduler import take_slot

# The size of one write: unread bytes of a reply are not copied.
CHUNK_BYTES = 65_536


async def write_pieces(
    request: web.Request, headers: Mapping[str, str], pieces: Sequence[bytes], status: int = 200
) -> web.StreamResponse:
    """Writes a reply in scheduler slots; a client that has gone is no error."""
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = sum(map(len, pieces))
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        for piece in pieces if request.method != "HEAD" else ():
            for begin in range(0, len(piece), CHUNK_BYTES):
                await take_slot("http")
                await response.write(memoryview(piece)[begin : begin + CHUNK_BYTES])
    return response

"""Bodies of HTTP requests, read whole, also beyond their limit.

A browser reads no answer before it has sent all of a form. It reports a connection that is closed
earlier as an error of the network.
"""

from __future__ import annotations

from aiohttp import web


async def body_of(request: web.Request, bytes_max: int) -> bytes:
    """Returns the body of a request. Raises HTTPException for a long, broken or incomplete one."""
    body = bytearray()
    try:
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > bytes_max:
                break
    except (ConnectionError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest from error
    if len(body) > bytes_max:
        await skip_body(request)
        raise web.HTTPRequestEntityTooLarge(bytes_max, len(body))
    return bytes(body)


async def skip_body(request: web.Request) -> None:
    """Reads the rest of a body, which nothing needs. Raises HTTPBadRequest for a broken one."""
    try:
        async for _ in request.content.iter_any():
            pass
    except (ConnectionError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest from error

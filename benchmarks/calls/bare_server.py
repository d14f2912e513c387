"""A bare grpc.aio server in its own process: the cost of gRPC alone.

`/benchmark.Bare/Stream` answers a request `size count` with `count` chunks of `size` bytes,
`/benchmark.Bare/Echo` each request with itself.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc

STREAM_METHOD, ECHO_METHOD = "/benchmark.Bare/Stream", "/benchmark.Bare/Echo"


async def stream(request: bytes, _context: object) -> AsyncIterator[bytes]:
    """Yields equal chunks: one `bytes` object repeatedly."""
    size, count = (int(part) for part in request.split())
    chunk = bytes(size)
    for _ in range(count):
        yield chunk


async def echo(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
    """Yields each request unchanged."""
    async for request in requests:
        yield request


async def serve() -> None:
    """Serves until the end of the process; the port goes to standard output."""
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("benchmark.Bare", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


@contextmanager
def bare_server() -> Iterator[str]:
    """Yields its address, while it runs."""
    command = [sys.executable, "-m", "benchmarks.calls.bare_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(serve())

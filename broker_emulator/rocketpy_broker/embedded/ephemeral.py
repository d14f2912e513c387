"""A broker for another program, in any language.

The broker prints its addresses as JSON. It ends with its parent process. It also ends with its
standard input, if that is a pipe or a socket. Another input, such as a terminal or /dev/null, says
nothing about the program. A kill of the broker itself leaves its temporary store.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from typing import TYPE_CHECKING

from rocketpy_broker.config import BrokerConfig
from rocketpy_proto.texts import address_text

if TYPE_CHECKING:
    from rocketpy_broker.broker import Ready

# Pause between two looks at the parent.
PARENT_SECONDS = 0.5


def is_input_pipe() -> bool:
    """True if standard input is a pipe or a socket, which ends with the other program."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def stop_with_parent(
    loop: asyncio.AbstractEventLoop, stopped: asyncio.Event, parent_pid: int
) -> None:
    """Sets `stopped` once the process has another parent, as after the end of `parent_pid`."""
    if os.getppid() == parent_pid:
        loop.call_later(PARENT_SECONDS, stop_with_parent, loop, stopped, parent_pid)
    else:
        stopped.set()


def addresses(config: BrokerConfig, ready: Ready) -> dict[str, str | int]:
    """Returns the broker's addresses, by the names of LocalBroker's properties in camel case."""
    ports = {
        "endpoint": ready.port,
        "nameServer": ready.name_server_port,
        "remotingEndpoint": ready.remoting_port,
        "httpEndpoint": ready.http_port,
        "tlsEndpoint": ready.tls_port,
    }
    found: dict[str, str | int] = {
        name: address_text(ready.host, port) for name, port in ports.items() if port is not None
    }
    if ready.console_url is not None:
        found["consoleUrl"] = ready.console_url
    if config.tls.is_self_signed:
        found["tlsCaFile"] = str(config.data / "config" / "tls" / "ca.pem")
    return {**found, "data": str(config.data), "pid": os.getpid()}

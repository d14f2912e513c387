"""The calls that a broker of ours has answered, by its metrics."""

from __future__ import annotations

import re
from urllib.request import ProxyHandler, build_opener

from tests.interop.remoting.clients import until

_COUNTED = re.compile(
    r'rocketmq_rpc_latency_milliseconds_count.*request_code="(\w+)",response_code="success"'
)


def answered_calls(http_endpoint: str) -> set[str]:
    """Returns the methods and requests, in lower case, that have succeeded since its start."""
    with build_opener(ProxyHandler({})).open(f"http://{http_endpoint}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {each[1] for each in map(_COUNTED.match, lines) if each}


def until_answered(http_endpoint: str, named: set[str]) -> None:
    """Waits until all these methods and requests have succeeded.

    Clients do not wait for the end of each: not of one-way requests, not of heartbeats.
    """
    until(
        lambda: named <= answered_calls(http_endpoint),
        lambda: named - answered_calls(http_endpoint),
    )

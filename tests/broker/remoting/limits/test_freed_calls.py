"""Calls that have failed or were cancelled leave no cycles: their memory is free at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, SUSPEND
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.broker.remoting.test_sends_and_pulls import pull_header
from tests.support.broker.clients.remoting_client import RemotingBroker


@contextmanager
def collected() -> Iterator[list[object]]:
    """Yields a list that has, after the block, what only a garbage collection can free."""
    found = list[object]()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_n12_failed_and_cancelled_calls_are_freed_at_once(remoting: RemotingBroker) -> None:
    """Asserts that requests and tasks are freed by their last reference.

    Refused lists of topics, 16 at a time, grew a broker to gigabytes: their parts were frozen.
    """
    await remoting.running.create_topic("T")
    header = EXCHANGES[Code.PULL_MESSAGE].request.encode(
        pull_header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
    )
    with collected() as found:
        answer = await remoting.client.ask(Code.DELETE_TOPIC_IN_BROKER, TopicRequest(" "))
        assert answer.code != ResponseCode.SUCCESS
        async with remoting.another() as other:
            other.tell(RemotingCommand(Code.PULL_MESSAGE, 1, ext_fields=header))
            await remoting.running.held(1)
        await remoting.running.held(0)
        del answer, other
    assert [each for each in found if isinstance(each, RemotingCommand | asyncio.Task)] == []

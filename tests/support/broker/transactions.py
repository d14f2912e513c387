"""Transactions through a real server: sent, ended, checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from rocketpy_broker.services.groups.client_stream import ClientStream
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import OP_QUEUE, OP_TAG, OPERATION, Operation
from rocketpy_proto.rocketpy.v1 import (
    common_pb2,
    groups_pb2,
    transactions_pb2,
    transactions_pb2_grpc,
)
from tests.broker.delay.test_levels import bodies
from tests.broker.delay.test_levels import visible as count
from tests.support.blocks import wire_block
from tests.support.broker.clients.group_clients import heartbeat
from tests.support.broker.running_broker import BrokerStarter, RunningBroker, until

__all__ = ["bodies", "count"]
# Settings of a store in which one block may have many half messages.
LARGE = {"commit_log_segment_bytes": 16 << 20, "consume_queue_file_bytes": 400_000}
COMMIT, ROLLBACK = transactions_pb2.COMMIT, transactions_pb2.ROLLBACK
GROUP = "producers"
GROUPS = (GROUP, "one", "two")


@dataclass
class Half:
    """A half message as its producer knows it."""

    transaction_id: str
    commit_log_offset: int
    queue_offset: int


async def prepare(
    running: RunningBroker, transaction_id: str, *, topic: str = "T", **properties: str
) -> Half:
    """Sends the half message of a transaction; its body is the transaction's id."""
    given = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": transaction_id} | properties
    named = {name: [value] for name, value in given.items()}
    block = wire_block(topic, [transaction_id.encode()], properties=named)
    answer = await running.append_block(topic, 1, block)
    assert (answer.status.code, answer.queue_id) == (0, 1), answer.status.remark
    return Half(transaction_id, answer.physical_offset, answer.queue_offset)


def append_halves(running: RunningBroker, count: int) -> None:
    """Appends half messages to their queue, as that many sends would."""
    given = {"TRAN_MSG": "true", "PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "1"}
    named = {name: [value] * count for name, value in given.items()}
    named["UNIQ_KEY"] = [f"of many {number}" for number in range(count)]
    block = wire_block(HALF_QUEUE.topic, [b"x"] * count, properties=named)
    running.broker.store.append(HALF_QUEUE, block.parsed())


def append_commits(running: RunningBroker, *commits: Sequence[int]) -> None:
    """Appends op messages, each with queue offsets of half messages; the next start reads them."""
    bodies = [",".join(map(str, offsets)).encode() for offsets in commits]
    named = {OPERATION: [Operation.COMMIT.value] * len(commits)}
    block = wire_block(OP_QUEUE.topic, bodies, tags=OP_TAG, properties=named)
    running.broker.store.append(OP_QUEUE, block.parsed())


async def end(
    running: RunningBroker,
    half: Half,
    resolution: int,
    *,
    group: str = GROUP,
    from_check: bool = False,
) -> int:
    """Ends a transaction; returns the answer's code."""
    return (await ended(running, half, resolution, group=group, from_check=from_check)).code


async def ended(
    running: RunningBroker,
    half: Half,
    resolution: int,
    *,
    group: str = GROUP,
    from_check: bool = False,
) -> common_pb2.Status:
    """Ends a transaction; returns the answer's status."""
    stub = transactions_pb2_grpc.TransactionsStub(running.channel)
    request = transactions_pb2.EndTransactionRequest(
        producer_group=group,
        transaction_id=half.transaction_id,
        commit_log_offset=half.commit_log_offset,
        queue_offset=half.queue_offset,
        resolution=cast("transactions_pb2.TransactionResolution", resolution),
        from_transaction_check=from_check,
    )
    response: transactions_pb2.EndTransactionResponse = await stub.EndTransaction(request)
    return response.status


@dataclass
class Producer:
    """A client of the producer groups, which keeps the checks that it gets."""

    _asked: list[groups_pb2.CheckTransaction] = field(default_factory=list)
    _streams: list[ClientStream] = field(default_factory=list)

    @property
    def asked(self) -> list[groups_pb2.CheckTransaction]:
        """All checks so far, including checks that a broker has just sent."""
        self._take_notices()
        return self._asked

    @property
    def halves(self) -> list[Half]:
        return [
            Half(one.transaction_id, one.commit_log_offset, one.queue_offset) for one in self.asked
        ]

    @asynccontextmanager
    async def listening(self, running: RunningBroker) -> AsyncIterator[None]:
        """Listens for checks of a broker."""
        assert (await heartbeat(running, "producer", producers=GROUPS)).code == 0
        self._streams.append(running.broker.services.groups.clients.open_notices("producer"))
        yield
        # A broker that stops drops what its streams hold.
        self._take_notices()

    def _take_notices(self) -> None:
        for stream in self._streams:
            while (notice := stream.take()) is not None:
                self._asked.append(notice.check_transaction)


@pytest.fixture
def producer(start_broker: BrokerStarter) -> Producer:
    """Returns a producer that listens for checks of every broker of the test."""
    producer = Producer()
    start_broker.clients.append(producer.listening)
    return producer


async def rounds(running: RunningBroker, number: int = 1) -> None:
    """Runs `number` rounds of checks, 30 s apart, each to its end."""
    services, store = running.broker.services, running.broker.store
    for _ in range(number):
        running.clock.jump(30_000)
        await services.transactions.checks.check_all()
        services.flush.group_commit.flush_soon()
        await until(lambda: store.is_dispatched(store.positions().log_end))

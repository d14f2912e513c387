"""Transactions through a real server: sent, ended, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from rocketpy_broker.services.transactions.check_service import CheckService
from rocketpy_proto.rocketpy.v1 import (
    common_pb2,
    groups_pb2,
    transactions_pb2,
    transactions_pb2_grpc,
)
from tests.broker.delay.test_levels import bodies
from tests.broker.delay.test_levels import visible as count
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, until

__all__ = ["bodies", "count"]
COMMIT, ROLLBACK = transactions_pb2.COMMIT, transactions_pb2.ROLLBACK
GROUP = "producers"


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
    """A stand-in for the producers that listen, which keeps the checks it gets."""

    asked: list[groups_pb2.CheckTransaction] = field(default_factory=list)
    listens: bool = True

    def ask(self, question: groups_pb2.CheckTransaction) -> bool:
        if self.listens:
            self.asked.append(question)
        return self.listens

    @property
    def halves(self) -> list[Half]:
        return [
            Half(one.transaction_id, one.commit_log_offset, one.queue_offset) for one in self.asked
        ]


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    """Returns a producer that every broker of the test asks."""
    producer = Producer()
    init = CheckService.__init__

    def listening(checks: CheckService, *given: Any) -> None:
        init(checks, *given[:-1], producer.ask)  # type: ignore[call-arg]

    monkeypatch.setattr(CheckService, "__init__", listening)
    return producer


async def rounds(running: RunningBroker, number: int = 1) -> None:
    """Runs `number` rounds of checks, 30 s apart, each to its end."""
    services, store = running.broker.services, running.broker.store
    for _ in range(number):
        running.clock.jump(30_000)
        await services.transactions.checks.check_all()
        services.flush.group_commit.flush_soon()
        await until(lambda: store.is_dispatched(store.positions().log_end))

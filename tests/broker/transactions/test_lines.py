"""Log lines of transactions, however many there are and whatever their names."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.transactions import check_report
from tests.support.broker.running_broker import StartBroker
from tests.support.broker.transactions import Producer, prepare, rounds

COUNT = 20


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.name == check_report.__name__
    ]


async def test_n14_half_messages_of_a_deleted_topic_leave_one_line(
    start_broker: StartBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for number in range(COUNT):
            await prepare(running, f"a{number}")
        await running.broker.services.admin.admin.delete_topic("T")
        await rounds(running, 2)
    [line] = lines(caplog)
    assert line.startswith(f"{COUNT} transactions: given up")
    assert "'a0'" in line
    assert not producer.asked


async def test_n14_a_round_without_producers_leaves_one_short_line(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Covers names of 32 kB, of which each byte takes four in a log."""
    async with start_broker() as running:
        await running.create_topic("T")
        for _ in range(COUNT):
            await prepare(running, "\x1f" * 9_000, PGROUP="\x1f" * 9_000)
        await rounds(running, 16)
    told = lines(caplog)
    assert len(told) == 16
    assert "15 checks" in told[-1]
    assert max(map(len, told)) < 1_000

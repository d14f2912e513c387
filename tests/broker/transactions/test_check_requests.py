"""Checks of open transactions, which reach a producer that listens."""

from __future__ import annotations

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_record
from tests.support.broker.clients.group_clients import heartbeat, listening
from tests.support.broker.running_broker import RunningBroker
from tests.support.broker.transactions import (
    COMMIT,
    GROUP,
    Half,
    bodies,
    end,
    prepare,
    rounds,
)


async def test_t04_a_producer_that_listens_is_asked_and_its_answer_ends_the_transaction(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", producers=[GROUP])
        await running.create_topic("T")
        await prepare(running, "a")
        await rounds(running)
        question = (await told.next()).check_transaction
        assert (question.producer_group, question.transaction_id) == (GROUP, "a")
        record = decode_record(question.record).record
        assert (record.topic, record.queue_id, record.body) == ("T", 1, b"a")
        half = Half(question.transaction_id, question.commit_log_offset, question.queue_offset)
        assert await end(running, half, COMMIT, from_check=True) == ResponseCode.SUCCESS
        await rounds(running)
        assert await bodies(running) == [b"a"]

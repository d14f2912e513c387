"""Transactions that our codec begins and ends, at masters of both versions."""

from __future__ import annotations

import pytest

from rocketpy_proto.record import decode_offset_message_id, decode_record
from rocketpy_proto.remoting import EXCHANGES, RequestCode
from rocketpy_proto.remoting.bodies.clients import HeartbeatData, ProducerData
from rocketpy_proto.remoting.headers.sends import (
    COMMIT,
    ROLLBACK,
    CheckTransactionStateRequest,
    EndTransactionRequest,
)
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, bodies, max_offset, put, send
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import Broker

UNIQUE_KEY = "0B" * 16
PREPARED = 4


def half(group: str, body: bytes) -> Outgoing:
    properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": UNIQUE_KEY}
    return Outgoing(body, properties, sys_flag=PREPARED)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_message_appears_when_it_is_committed_and_not_when_rolled_back(
    connection: Connection, queue: Queue, master: Broker, decision: int
) -> None:
    group = f"producers-{queue.topic}"
    stored = send(connection, queue, half(group, b"decided")).ok().header
    assert max_offset(connection, queue) == 0
    header = EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=decode_offset_message_id(stored.msg_id)[1],
        commit_or_rollback=decision,
        msg_id=UNIQUE_KEY,
        topic=queue.topic,
    )
    connection.ask(RequestCode.END_TRANSACTION, header).ok()
    put(connection, queue, Outgoing(b"after"))
    expected = [b"decided", b"after"] if decision == COMMIT else [b"after"]
    until(lambda: len(bodies(connection, queue)) == len(expected), "visible", [master])
    assert bodies(connection, queue) == expected


def test_a_broker_asks_after_a_message_that_was_left_undecided(
    master: Broker, queue: Queue
) -> None:
    group = f"producers-{queue.topic}"
    with Connection(master.address) as producer:
        heartbeat = HeartbeatData(group, producers=(ProducerData(group),))
        producer.ask(RequestCode.HEART_BEAT, body=heartbeat).ok()
        send(producer, queue, half(group, b"forgotten")).ok()
        question = producer.next_asked_of_us()
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE
        form = EXCHANGES[RequestCode.CHECK_TRANSACTION_STATE].request
        asked = form.decode(question.ext_fields)
        assert isinstance(asked, CheckTransactionStateRequest)
        record = decode_record(bytes(question.body)).record
        assert (record.topic, record.body) == (queue.topic, b"forgotten")
        assert asked.transaction_id == UNIQUE_KEY
        header = EndTransactionRequest(
            producer_group=group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=COMMIT,
            msg_id=UNIQUE_KEY,
            is_from_transaction_check=True,
            topic=queue.topic,
        )
        producer.ask(RequestCode.END_TRANSACTION, header).ok()
        until(lambda: bodies(producer, queue) == [b"forgotten"], "committed", [master])

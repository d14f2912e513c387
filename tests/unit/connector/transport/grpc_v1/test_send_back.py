"""Send-backs of messages in spite of faults: none is lost, and unanswered ones are resent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from pyspark_rocketpy.errors import BrokerBusyError, BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import MessageToSendBack, SentBack
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    retry_pb2,
    retry_pb2_grpc,
)

LOSE = "lose the answer"
MORE = "answer for more"


class ScriptedRetries(admin_pb2_grpc.AdminServicer, retry_pb2_grpc.RetryServicer):
    """A server that answers about all messages of a call, or as the script says for each call.

    A number: answer for the first messages, up to this count. A dictionary: statuses by log offset.
    LOSE: take all, and break off. MORE: answer for each message twice. It never answers for a
    message that it has not taken, and never out of order. It fails after 100 calls.
    """

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.taken: list[int] = []
        self.calls: list[int] = []

    def GetBrokerInfo(  # noqa: N802 (a method of the contract)
        self, _request: Any, _context: Any
    ) -> admin_pb2.GetBrokerInfoResponse:
        return admin_pb2.GetBrokerInfoResponse(body_bytes_max=1 << 22, request_bytes_max=1 << 25)

    def SendBack(  # noqa: N802 (a method of the contract)
        self, request: retry_pb2.SendBackRequest, context: grpc.ServicerContext
    ) -> retry_pb2.SendBackResponse:
        self.calls.append(len(request.messages))
        assert len(self.calls) < 100, "it is called without end"
        step = self.script.pop(0) if self.script else len(request.messages)
        if isinstance(step, common_pb2.Status):
            return retry_pb2.SendBackResponse(status=step)
        count = step if isinstance(step, int) else len(request.messages)
        statuses: dict[int, common_pb2.Status] = step if isinstance(step, dict) else {}
        answers = []
        for message in request.messages[:count]:
            status = statuses.get(message.commit_log_offset)
            if status is None:
                self.taken.append(message.commit_log_offset)
            answers.append(retry_pb2.SentBackMessage(status=status, to=retry_pb2.RETRY))
        if step == MORE:
            answers += answers
        if step == LOSE:
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return retry_pb2.SendBackResponse(messages=answers)


Scripted = tuple[ScriptedRetries, Callable[[int], SentBack]]


@pytest.fixture
def scripted(waits_ms: list[int]) -> Iterator[Scripted]:
    """Yields a scripted broker, and a function that sends `count` messages back to it."""
    servicer = ScriptedRetries()
    server = grpc.server(ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServicer_to_server(servicer, server)
    retry_pb2_grpc.add_RetryServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    config = ClientConfig((f"127.0.0.1:{port}",), 10_000)

    def send(count: int) -> SentBack:
        messages = [MessageToSendBack(offset, 0, "T", "") for offset in range(count)]
        return GrpcTransport(config, RetryPolicy(2, 1)).send_back("g", messages, None)

    yield servicer, send
    forget_client(config)
    server.stop(None)


def status(code: int, remark: str = "") -> common_pb2.Status:
    return common_pb2.Status(code=code, remark=remark)


def test_k06_a_thousand_go_with_a_call(scripted: Scripted) -> None:
    servicer, send = scripted
    assert send(2_500) == SentBack(2_500)
    assert servicer.calls == [1_000, 1_000, 500]
    assert servicer.taken == list(range(2_500))


def test_k06_what_a_call_does_not_answer_for_goes_with_the_next(scripted: Scripted) -> None:
    servicer, send = scripted
    servicer.script = [3, 1]
    assert send(10) == SentBack(10)
    assert servicer.calls == [10, 7, 6]
    assert servicer.taken == list(range(10))


def test_k06_a_broker_that_answers_for_no_message_is_asked_again_a_bounded_number_of_times(
    scripted: Scripted, waits_ms: list[int]
) -> None:
    servicer, send = scripted
    servicer.script = [0, 2, 0, 1]
    assert send(3) == SentBack(3)
    assert waits_ms == [1, 1]
    servicer.script = [1, *[0] * 4]
    with pytest.raises(BrokerBusyError, match="has none of 2"):
        send(3)
    assert servicer.calls == [3, 3, 1, 1, 3, 2, 2, 2]


def test_k06_messages_that_are_stored_while_others_are_refused_count_as_progress(
    scripted: Scripted,
) -> None:
    servicer, send = scripted
    busy = status(2, "busy")
    servicer.script = [dict.fromkeys(range(end), busy) for end in range(5, 0, -1)]
    assert send(6) == SentBack(6)


def test_k06_a_lost_answer_is_asked_for_again_so_messages_come_twice(scripted: Scripted) -> None:
    servicer, send = scripted
    servicer.script = [LOSE]
    assert send(3) == SentBack(3)
    assert servicer.taken == [0, 1, 2] * 2


@pytest.mark.parametrize("refusal", [status(2, "busy"), status(1, "FLUSH_DISK_TIMEOUT: late")])
def test_k06_messages_of_a_busy_broker_go_again_alone(
    scripted: Scripted, refusal: common_pb2.Status
) -> None:
    servicer, send = scripted
    servicer.script = [{1: refusal, 3: refusal}, {3: refusal}]
    assert send(5) == SentBack(5)
    assert servicer.calls == [5, 2, 1]
    assert sorted(servicer.taken) == list(range(5))


def test_k06_a_broker_that_stays_busy_is_told(scripted: Scripted) -> None:
    servicer, send = scripted
    servicer.script = [status(2, "busy")] * 3
    with pytest.raises(BrokerBusyError, match="busy"):
        send(1)
    servicer.script = [{0: status(2, "busy still")}] * 3
    with pytest.raises(BrokerBusyError, match="busy still"):
        send(1)


def test_k06_a_refused_message_is_named_and_not_sent_again(scripted: Scripted) -> None:
    servicer, send = scripted
    servicer.script = [{1: status(1, "no such message")}]
    with pytest.raises(BrokerError, match="at log offset 1 was not sent back: no such message"):
        send(3)
    assert servicer.calls == [3]


def test_k06_connections_that_break_too_often_are_told(scripted: Scripted) -> None:
    servicer, send = scripted
    servicer.script = [LOSE] * 3
    with pytest.raises(ConnectionFailedError, match="lost"):
        send(1)
    assert servicer.calls == [1] * 3

"""Pulls of the client without Spark, at a broker with wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import grpc
import numpy as np
import pytest

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import SendError, UnreadableError
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.lookup import message_at, query_messages
from rocketpy_broker.client.messages.model import Message
from rocketpy_broker.client.messages.sender import MessageSender
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_broker.messages.outgoing_message import OutgoingMessage
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
)

FOUND, NO_MATCHED = broker_pb2.FOUND, broker_pb2.NO_MATCHED_MESSAGE


def found(
    offsets: Sequence[int], next_offset: int, topic: str = "T", queue_id: int = 0
) -> broker_pb2.PullResponse:
    """Returns an answer with records of these offsets."""
    records = [encode_record(Record(topic, queue_id, b"x", queue_offset=at)) for at in offsets]
    return broker_pb2.PullResponse(
        pull_status=FOUND,
        next_offset=next_offset,
        record_sizes=np.array([len(record) for record in records], ">i4").tobytes(),
        records=b"".join(records),
    )


def odd(sizes: bytes) -> broker_pb2.PullResponse:
    """Returns an answer with three records and these sizes."""
    answer = found([0, 1, 2], 3)
    answer.record_sizes = sizes
    return answer


@dataclass
class WrongBroker(broker_pb2_grpc.BrokerServicer, admin_pb2_grpc.AdminServicer):
    """A broker of topic T, one queue of which has the offsets [0, 3)."""

    answers: list[broker_pb2.PullResponse] = field(default_factory=list)
    pulls: int = 0
    committed: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    bytes_max: int = 0

    def QueryOffsets(  # noqa: N802 (a method of the contract)
        self, _request: broker_pb2.QueryOffsetsRequest, _context: grpc.ServicerContext
    ) -> broker_pb2.QueryOffsetsResponse:
        queue = broker_pb2.QueueOffsets(queue_id=0, max_offset=3, committed_offset=-1)
        topic = broker_pb2.TopicOffsets(topic="T", queues=[queue])
        return broker_pb2.QueryOffsetsResponse(topics=[topic])

    def QueryConsumerOffsets(  # noqa: N802 (a method of the contract)
        self, _request: broker_pb2.QueryConsumerOffsetsRequest, _context: grpc.ServicerContext
    ) -> broker_pb2.QueryConsumerOffsetsResponse:
        return broker_pb2.QueryConsumerOffsetsResponse(offsets=[broker_pb2.ConsumerOffset()])

    def CommitOffsets(  # noqa: N802 (a method of the contract)
        self, request: broker_pb2.CommitOffsetsRequest, _context: grpc.ServicerContext
    ) -> broker_pb2.CommitOffsetsResponse:
        self.committed += [entry.offset for entry in request.offsets]
        return broker_pb2.CommitOffsetsResponse()

    def Pull(  # noqa: N802 (a method of the contract)
        self, _request: broker_pb2.PullRequest, _context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        self.pulls += 1
        assert self.pulls < 100, "it is asked without end"
        return iter(self.answers)

    def Append(  # noqa: N802 (a method of the contract)
        self, requests: Iterator[broker_pb2.AppendRequest], _context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.AppendResponse]:
        for request in islice(requests, 2):
            yield broker_pb2.AppendResponse(queue_id=request.queue_id, record_count=1)

    def GetBrokerInfo(  # noqa: N802 (a method of the contract)
        self, _request: admin_pb2.GetBrokerInfoRequest, _context: grpc.ServicerContext
    ) -> admin_pb2.GetBrokerInfoResponse:
        return admin_pb2.GetBrokerInfoResponse(
            body_bytes_max=self.bytes_max, request_bytes_max=self.bytes_max
        )

    def ListTopics(  # noqa: N802 (a method of the contract)
        self, _request: admin_pb2.ListTopicsRequest, _context: grpc.ServicerContext
    ) -> admin_pb2.ListTopicsResponse:
        topic = admin_pb2.TopicConfig(topic="T", read_queue_nums=3, write_queue_nums=3, perm=6)
        return admin_pb2.ListTopicsResponse(configs=[topic])

    def QueryMessage(  # noqa: N802 (a method of the contract)
        self, _request: admin_pb2.QueryMessageRequest, _context: grpc.ServicerContext
    ) -> admin_pb2.MessagesResponse:
        if self.pages:
            return admin_pb2.MessagesResponse(next_before_offset=self.pages.pop(0))
        answer = self.answers[0]
        return admin_pb2.MessagesResponse(records=answer.records, record_sizes=answer.record_sizes)


@pytest.fixture
def broker() -> Iterator[tuple[WrongBroker, BrokerConnection]]:
    """Yields such a broker, and a connection to it."""
    servicer = WrongBroker()
    server = grpc.server(ThreadPoolExecutor(4))
    broker_pb2_grpc.add_BrokerServicer_to_server(servicer, server)
    admin_pb2_grpc.add_AdminServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with BrokerConnection(f"127.0.0.1:{port}") as connection:
        yield servicer, connection
    server.stop(None).wait()


def at_zero(connection: BrokerConnection) -> Iterator[Message]:
    message = message_at(connection, "T", 0, 0)
    return iter([] if message is None else [message])


READERS: dict[str, Callable[[BrokerConnection], Iterator[Message]]] = {
    "first": lambda connection: TopicReader(connection, "T").first(),
    "last": lambda connection: TopicReader(connection, "T").last(3),
    "next": lambda connection: TopicReader(connection, "T").next_messages(0),
    "group": lambda connection: GroupReader(connection, "T", "g").messages(),
    "at": at_zero,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(found([], 1), id="found nothing"),
        pytest.param(found([], 1 << 60), id="found nothing of all"),
        pytest.param(broker_pb2.PullResponse(pull_status=NO_MATCHED, next_offset=1), id="no match"),
        pytest.param(
            broker_pb2.PullResponse(
                status=common_pb2.Status(code=ResponseCode.PULL_RETRY_IMMEDIATELY),
                pull_status=NO_MATCHED,
                next_offset=1,
            ),
            id="no match, go on",
        ),
        pytest.param(found([0], 3), id="too few"),
        pytest.param(found([0, 1, 2], 1), id="too many"),
        pytest.param(found([1], 1), id="another offset"),
        pytest.param(found([0], 0), id="a step that stands still"),
        pytest.param(found([0], -4), id="a step backwards"),
        pytest.param(found([0], 1, topic="U"), id="another topic"),
        pytest.param(found([0], 1, queue_id=1), id="another queue"),
        pytest.param(odd(b"\0\0\0"), id="sizes of odd length"),
        pytest.param(odd(b"\xff" * 12), id="negative sizes"),
        pytest.param(odd(b"\x7f" * 12), id="long sizes"),
    ],
)
def test_a_wrong_answer_is_an_error(
    broker: tuple[WrongBroker, BrokerConnection], answer: broker_pb2.PullResponse, reader: str
) -> None:
    servicer, connection = broker
    servicer.answers = [answer]
    with pytest.raises(UnreadableError, match=r"of queue 0 of topic 'T': the broker did not send"):
        list(READERS[reader](connection))


@pytest.mark.parametrize("reader", READERS)
def test_a_right_answer_is_read(broker: tuple[WrongBroker, BrokerConnection], reader: str) -> None:
    servicer, connection = broker
    servicer.answers = [found([0], 1)]
    if reader != "at":
        servicer.answers += [found([1, 2], 3)]
    assert [message.queue_offset for message in READERS[reader](connection)] in ([0], [0, 1, 2])


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ],
)
@pytest.mark.parametrize(
    ("next_offset", "committed"), [(1 << 60, [3]), (4, [3]), (3, [3]), (-4, [])]
)
def test_c07_a_group_is_committed_up_to_the_end_of_its_queue(
    broker: tuple[WrongBroker, BrokerConnection],
    code: ResponseCode,
    next_offset: int,
    committed: list[int],
) -> None:
    servicer, connection = broker
    status = common_pb2.Status(code=code)
    servicer.answers = [broker_pb2.PullResponse(status=status, next_offset=next_offset)]
    assert list(GroupReader(connection, "T", "g").messages()) == []
    assert servicer.committed == committed


@pytest.mark.parametrize("following", [[7, 7], [7, 8], [-1]])
def test_pages_of_messages_by_key_go_on(
    broker: tuple[WrongBroker, BrokerConnection], following: list[int]
) -> None:
    servicer, connection = broker
    servicer.pages = following
    with pytest.raises(UnreadableError, match="listing does not end"):
        query_messages(connection, "T", "k", 10)


@pytest.mark.parametrize("sizes", [b"\0", b"\0\0\0\x60\0", b"\xff" * 12, b"\x7f" * 12, b""])
def test_messages_by_key_have_sizes(
    broker: tuple[WrongBroker, BrokerConnection], sizes: bytes
) -> None:
    servicer, connection = broker
    servicer.answers = [odd(sizes)]
    with pytest.raises(UnreadableError, match="the broker's answer is damaged"):
        query_messages(connection, "T", "k", 10)


def test_limits_of_zero_are_an_error(broker: tuple[WrongBroker, BrokerConnection]) -> None:
    _, connection = broker
    said = f"the broker at {connection.endpoint} answers .* body_bytes_max 0 .* more than 0"
    with pytest.raises(UnreadableError, match=said):
        _ = connection.limits


def test_a_call_that_ends_before_its_last_answer_is_an_error(
    broker: tuple[WrongBroker, BrokerConnection],
) -> None:
    servicer, connection = broker
    servicer.bytes_max = 1 << 20
    said = f"{connection.endpoint} acknowledged 2 of 3 messages and ended the call"
    with pytest.raises(SendError, match=said):
        list(MessageSender(connection, "T").send([OutgoingMessage(b"x")] * 3))

"""A table of the connector's calls, with right answers and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pyspark_rocketpy.offsets import QueueBounds, QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.values import (
    BrokerLimits,
    PullOptions,
    QueueTime,
    RetryPolicy,
    Subscription,
)
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    BatchName,
    Block,
    CommittedBatch,
    MessageToSendBack,
    SentBack,
    WriteQueues,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, common_pb2, retry_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.queues import Q0
from tests.support.scripted_answers import (
    METHODS,
    Right,
)
from tests.unit.connector.transport.grpc_v1.scripted_pulls import response, stored

STORE_ID = "0badcafe"
JOB = BatchJob(BatchName("writer", 7), 11)
RANGE = QueueRange("T", 0, 2, 6)
SUBSCRIPTION = Subscription(("T",), None, "g")
WIRE = wire_block("T", [b"a", b"b"])
BLOCK = Block("T", 0, WIRE.record_sizes, WIRE.records)
PART = broker_pb2.CommitBatchRequest(
    job=broker_pb2.BatchJob(writer_id="writer", batch_id=7, job_token=11, store_id=STORE_ID)
).SerializeToString()


@dataclass
class Subject:
    """The connector's transport to the server."""

    config: ClientConfig
    times_max: int
    send_timeout_ms: int = 30_000

    @property
    def transport(self) -> GrpcTransport:
        policy = RetryPolicy(self.times_max, 100)
        return GrpcTransport(self.config, policy, self.send_timeout_ms)

    @cached_property
    def queries(self) -> GrpcOffsetQueries:
        return self.transport.offset_queries()

    def written(self, attempt: Attempt | None, act: Callable[[BlockWriter], Any]) -> Any:
        with closing(self.transport.block_writer(attempt)) as writer:
            return act(writer)

    def sent(self, attempt: Attempt | None) -> bool:
        def send(writer: BlockWriter) -> bool:
            writer.send(BLOCK)
            return bool(writer.finish())

        return bool(self.written(attempt, send))

    def limits(self) -> BrokerLimits:
        """Returns the limits, as to a process without a connection."""
        forget_client(self.config)
        return self.transport.limits()

    def pulled(self) -> list[bytes]:
        options = PullOptions("g", 1 << 20, fail_on_data_loss=True, store_id=STORE_ID)
        chunks = list(self.transport.pull(RANGE, options))
        return [body for each in chunks for body in bodies_of(bytes(each.records), each.sizes)]


@dataclass(frozen=True)
class Row:
    """A call, its right result, and impossible answers to it.

    The empty answer is one of these unless it is the call's success. `is_once`: never repeated.
    """

    exercise: Callable[[Subject], object]
    result: object
    wrong: tuple[Message, ...] = ()
    is_empty_right: bool = False
    is_once: bool = False


def measured(**changes: int) -> broker_pb2.MeasureRangesResponse:
    fields = {"end": 6, "bytes": 400, "offset_count": 4, "first_bytes": 100, **changes}
    return broker_pb2.MeasureRangesResponse(ranges=[broker_pb2.MeasuredRange(**fields)])


def bounds(begin: int, end: int, topic: str = "T", queue_id: int = 0) -> Message:
    queue = broker_pb2.QueueOffsets(
        queue_id=queue_id, min_offset=begin, max_offset=end, committed_offset=-1
    )
    topics = [broker_pb2.TopicOffsets(topic=topic, queues=[queue])]
    return broker_pb2.QueryOffsetsResponse(topics=topics, store_id=STORE_ID)


def info(body: int = 4 << 20, request: int = 32 << 20) -> Message:
    return admin_pb2.GetBrokerInfoResponse(
        body_bytes_max=body,
        request_bytes_max=request,
        commit_log_segment_bytes=1 << 30,
        store_id=STORE_ID,
    )


def topics(name: str, num: int) -> Message:
    config = admin_pb2.TopicConfig(topic=name, write_queue_nums=num)
    return admin_pb2.ListTopicsResponse(configs=[config])


def found(*offsets: int) -> Message:
    each = [broker_pb2.FoundOffset(found=True, offset=offset) for offset in offsets]
    return broker_pb2.SearchOffsetsResponse(offsets=each)


def limited(end: int, *taken: int) -> Message:
    return broker_pb2.LimitRangesResponse(ends=[end], bytes=taken)


def keys(count: int, begin: int, end: int, queue_id: int = 0) -> Message:
    part = broker_pb2.OffsetRange(topic="T", queue_id=queue_id, begin=begin, end=end)
    return broker_pb2.FindKeysResponse(ranges=[part], range_count=count)


def sent_back(*to: int) -> Message:
    return retry_pb2.SendBackResponse(
        messages=[retry_pb2.SentBackMessage(to=each) for each in to]  # type: ignore[arg-type]
    )


def batch(outcome: int, batch_id: int, count: int = 2) -> broker_pb2.BatchResponse:
    return broker_pb2.BatchResponse(
        outcome=outcome,  # type: ignore[arg-type]
        batch_id=batch_id,
        record_count=count,
        record_count_decided=2,
    )


def appended(count: int) -> Message:
    return broker_pb2.AppendResponse(record_count=count)


def staged(request: broker_pb2.StageBlocksRequest) -> Message:
    """Returns the state after this request: no block at the greeting, then one more for each."""
    count = request.block_number + bool(request.records)
    size = len(WIRE.records) * count
    return broker_pb2.StageBlocksResponse(block_count=count, record_count=2 * count, bytes=size)


def being_stored(_request: object) -> Message:
    return batch(broker_pb2.IN_PROGRESS, 7, 0)


def committed(_request: object) -> Message:
    return batch(broker_pb2.COMMITTED, 7)


def pulled(request: broker_pb2.PullRequest) -> Message:
    return response(stored(request.offset, [b"c", b"d", b"e", b"f"]), next_offset=6)


WRONG_BATCHES = (
    batch(99, 7),
    batch(broker_pb2.COMMITTED, 6),
    batch(broker_pb2.ALREADY_COMMITTED, 6),
    batch(broker_pb2.IN_PROGRESS, 7, -1),
)
RIGHT: dict[str, Right] = {
    "GetBrokerInfo": lambda _: info(),
    "ListTopics": lambda _: topics("T", 3),
    "Append": lambda _: appended(2),
    "StageBlocks": staged,
    "CommitBatch": being_stored,
    "QueryBatch": committed,
    "AbortBatch": lambda _: broker_pb2.AbortBatchResponse(attempt_count=1),
    "Pull": pulled,
    "QueryOffsets": lambda _: bounds(2, 6),
    "SearchOffsets": lambda _: found(3),
    "MeasureRanges": lambda _: measured(),
    "LimitRanges": lambda _: limited(4, 200),
    "FindKeys": lambda _: keys(1, 2, 4),
    "CheckFilter": lambda _: broker_pb2.CheckFilterResponse(),
    "CommitOffsets": lambda _: broker_pb2.CommitOffsetsResponse(),
    "SendBack": lambda _: sent_back(retry_pb2.DEAD_LETTER),
}
COMMITTED = CommittedBatch(7, True, 2, 2)
TABLE = {
    "GetBrokerInfo": Row(
        Subject.limits,
        BrokerLimits(4 << 20, 32 << 20, 1 << 30),
        (info(body=0), info(request=0), info(body=-1)),
    ),
    "ListTopics": Row(
        lambda subject: subject.written(None, lambda writer: writer.write_queues(["T"])),
        {"T": WriteQueues({"": 3})},
        (topics("T", 0), topics("another", 3), topics("T", -1)),
    ),
    "Append": Row(lambda subject: subject.sent(None), False, (appended(1), appended(3))),
    # The counts of sent and stored messages are compared when a task ends.
    "StageBlocks": Row(lambda subject: subject.sent(Attempt(JOB, 0, 1)), True),
    "CommitBatch": Row(
        lambda subject: subject.transport.commit_batch([PART], 7), COMMITTED, WRONG_BATCHES
    ),
    "QueryBatch": Row(
        lambda subject: subject.transport.commit_batch([PART], 7), COMMITTED, WRONG_BATCHES
    ),
    "AbortBatch": Row(
        lambda subject: subject.transport.abort_batch(JOB), None, is_empty_right=True, is_once=True
    ),
    "Pull": Row(Subject.pulled, [b"c", b"d", b"e", b"f"]),
    "QueryOffsets": Row(
        lambda subject: subject.queries.bounds(SUBSCRIPTION),
        {"T": {Q0: QueueBounds(2, 6, -1)}},
        (bounds(2, 6, topic="another"), bounds(6, 2), bounds(-1, 6), bounds(2, 6, queue_id=-1)),
    ),
    "SearchOffsets": Row(
        lambda subject: subject.queries.search([QueueTime("T", 0, 5)]),
        [3],
        (found(3, 4), found(-1)),
    ),
    "MeasureRanges": Row(
        lambda subject: subject.queries.limit_bytes([RANGE], 200),
        [4],
        (measured(end=7), measured(end=1), measured(bytes=-1), measured(offset_count_left=-1)),
    ),
    "LimitRanges": Row(
        lambda subject: subject.queries.limit_bytes([RANGE], 200),
        [4],
        (limited(7, 200), limited(1, 200), limited(4), limited(4, 200, 1), limited(4, -1)),
    ),
    "FindKeys": Row(
        lambda subject: subject.queries.find_keys([RANGE], ["k"]),
        [QueueRange("T", 0, 2, 4)],
        (keys(2, 2, 4), keys(0, 2, 4), keys(1, 1, 4), keys(1, 2, 7), keys(1, 2, 4, queue_id=1)),
    ),
    "CheckFilter": Row(
        lambda subject: subject.queries.expression_fault("a = 1"), None, is_empty_right=True
    ),
    "CommitOffsets": Row(
        lambda subject: subject.queries.commit("g", {"T": {Q0: 3}}, {}), None, is_empty_right=True
    ),
    "SendBack": Row(
        lambda subject: subject.transport.send_back("g", [MessageToSendBack(0, 0, "T", "")], None),
        SentBack(dead_letters=1),
        (sent_back(retry_pb2.RETRY, retry_pb2.RETRY), sent_back(0), sent_back(99)),
    ),
}


def with_status(name: str, code: int, remark: str) -> Message:
    """Returns an answer with only this status; its other fields would read as zeros."""
    answer: Any = GetMessageClass(METHODS[name].output_type)()
    answer.status.CopyFrom(common_pb2.Status(code=code, remark=remark))
    assert isinstance(answer, Message)
    return answer
